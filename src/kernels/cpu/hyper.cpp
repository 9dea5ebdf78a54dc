// mHC around hyper_pre: the expansion of the streams, and the head that ends them.
#include "kernels/hyper.h"

#include "kernels/cpu/hyper_mix.h"
#include "kernels/cpu/ops.h"
#include "kernels/dispatch/kernels.h"

namespace hadal::cpu {
namespace {

// X[k] <- post[k] * a + sum_j comb[j][k] X[j] for any number of streams.
template <class T>
void expand(const T* a, const float* post, const float* comb, int64_t n, T* x, int64_t stride,
            int r) {
  float old[kMaxStreams];
  for (int64_t c = 0; c < n; ++c) {
    float av = load(a[c]);
    for (int j = 0; j < r; ++j) old[j] = load(x[j * stride + c]);
    for (int k = 0; k < r; ++k) {
      float sum = post[k] * av;
      for (int j = 0; j < r; ++j) sum += comb[j * r + k] * old[j];
      store(x[k * stride + c], sum);
    }
  }
}

}  // namespace

void hyper_post(Context& ctx, const Tensor& a, const Tensor& post, const Tensor& comb,
                const Tensor& x) {
  int64_t rows = x.shape[0], c = x.shape[2];
  int r = static_cast<int>(x.shape[1]);
  expect_shape("hyper_post", "a", a, {rows, c});
  expect_dtype("hyper_post", "a", a, x.dtype);
  expect_shape("hyper_post", "post", post, {rows, r});
  expect_shape("hyper_post", "comb", comb, {rows, r, r});
  for (const Tensor* f : {&post, &comb}) expect_dtype("hyper_post", "post, comb", *f, DType::kF32);
  expect_adjacent("hyper_post", "x", x);
  HADAL_CHECK(r <= kMaxStreams, "[hyper_post] x " + x.describe() + ", more than 8 streams");
  int64_t width = std::min<int64_t>(c, 1024), cuts = (c + width - 1) / width;
  with_activation("hyper_post", x.dtype, [&](auto type) {
    using T = decltype(type);
    const auto& loops = ctx.kernels.rows->of(type);
    ctx.threads.run(rows * cuts, grain_of(width * r * 2), [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t t = i / cuts, at = i % cuts * width, n = std::min(width, c - at);
        const T* in = a.at<const T>(t, at);
        const float *p = post.at<const float>(t), *m = comb.at<const float>(t);
        T* streams = x.at<T>(t, 0, at);
        if (r == 4) {
          loops.expand4(in, p, m, n, streams, x.stride[1]);
        } else {
          expand(in, p, m, n, streams, x.stride[1], r);
        }
      }
    });
  });
}

void hyper_head(Context& ctx, const Tensor& x, const HyperWeights& w, const HyperParams& p,
                const Tensor& y) {
  int64_t rows = x.shape[0], c = x.shape[2];
  int r = static_cast<int>(x.shape[1]);
  expect_shape("hyper_head", "fn", w.fn, {r, r * c});
  expect_shape("hyper_head", "base", w.base, {r});
  expect_shape("hyper_head", "scale", w.scale, {1});
  expect_shape("hyper_head", "y", y, {rows, c});
  expect_dtype("hyper_head", "y", y, x.dtype);
  HADAL_CHECK(r <= kMaxStreams, "[hyper_head] x " + x.describe() + ", more than 8 streams");
  const float *base = w.base.at<const float>(), scale = *w.scale.at<const float>();
  with_activation("hyper_head", x.dtype, [&](auto type) {
    using T = decltype(type);
    ctx.threads.run(rows, 1, [&](int64_t begin, int64_t end, int) {
      float pre[kMaxStreams];
      for (int64_t t = begin; t < end; ++t) {
        mixes_double<T>(x, t, w.fn, p.norm_eps, pre);
        for (int j = 0; j < r; ++j) pre[j] = sigmoid(pre[j] * scale + base[j]) + p.eps;
        collapse(ctx.kernels.rows->of(type), x.at<const T>(t), x.stride[1], pre, r, c, y.at<T>(t));
      }
    });
  });
}

}  // namespace hadal::cpu
