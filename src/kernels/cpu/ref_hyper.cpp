// mHC: the reference of hyper_pre, the head, and the expansion of the streams.
#include "kernels/cpu/ref_hyper.h"

#include "kernels/cpu/hyper_mix.h"

namespace hadal {
namespace {

// m[i] = (fn_i . v) * rsqrt(mean(v^2) + eps) with v the streams of one token after each other.
template <class T>
void mixes(const Tensor& x, int64_t t, const Tensor& fn, float eps, float* m) {
  int64_t r = x.shape[1], c = x.shape[2];
  double squares = 0;
  for (int64_t j = 0; j < r; ++j) squares += sum_squares(x.at<const T>(t, j), c);
  double factor = 1.0 / std::sqrt(squares / static_cast<double>(r * c) + eps);
  for (int64_t i = 0; i < fn.shape[0]; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < r; ++j) {
      const T* v = x.at<const T>(t, j);
      const float* f = fn.at<const float>(i, j * c);
      for (int64_t k = 0; k < c; ++k) sum += double{load(v[k])} * f[k];
    }
    m[i] = static_cast<float>(sum * factor);
  }
}

// One column of hyper_post: all destinations from all sources.
template <class T>
void expand(const T* a, const float* post, const float* comb, T* x, int64_t stride, int r,
            int64_t begin, int64_t end) {
  float old[kMaxStreams];
  for (int64_t c = begin; c < end; ++c) {
    float av = load(a[c]);
    for (int j = 0; j < r; ++j) old[j] = load(x[j * stride + c]);
    for (int k = 0; k < r; ++k) {
      float sum = post[k] * av;
      for (int j = 0; j < r; ++j) sum += comb[j * r + k] * old[j];
      store(x[k * stride + c], sum);
    }
  }
}

// The released width, without inner loops, so that compilers vectorise over columns.
template <class T>
void expand4(const T* a, const float* post, const float* m, T* __restrict x0, T* __restrict x1,
             T* __restrict x2, T* __restrict x3, int64_t begin, int64_t end) {
  float p0 = post[0], p1 = post[1], p2 = post[2], p3 = post[3];
  for (int64_t c = begin; c < end; ++c) {
    float av = load(a[c]), v0 = load(x0[c]), v1 = load(x1[c]), v2 = load(x2[c]), v3 = load(x3[c]);
    store(x0[c], p0 * av + m[0] * v0 + m[4] * v1 + m[8] * v2 + m[12] * v3);
    store(x1[c], p1 * av + m[1] * v0 + m[5] * v1 + m[9] * v2 + m[13] * v3);
    store(x2[c], p2 * av + m[2] * v0 + m[6] * v1 + m[10] * v2 + m[14] * v3);
    store(x3[c], p3 * av + m[3] * v0 + m[7] * v1 + m[11] * v2 + m[15] * v3);
  }
}

}  // namespace

void ref_hyper_pre(Context& ctx, const Tensor& x, const HyperWeights& w, const HyperParams& p,
                   const Tensor& y, const Tensor& post, const Tensor& comb) {
  check_hyper_pre(x, w, p, y, post, comb);
  int64_t rows = x.shape[0], c = x.shape[2];
  int r = static_cast<int>(x.shape[1]);
  with_activation("hyper_pre", x.dtype, [&](auto type) {
    using T = decltype(type);
    ctx.threads.run(rows, 1, [&](int64_t begin, int64_t end, int) {
      float m[2 * kMaxStreams + kMaxStreams * kMaxStreams], pre[kMaxStreams];
      for (int64_t t = begin; t < end; ++t) {
        mixes<T>(x, t, w.fn, p.norm_eps, m);
        hyper_maps(m, r, w, p, pre, post.at<float>(t), comb.at<float>(t));
        collapse(x.at<const T>(t), x.stride[1], pre, r, 0, c, y.at<T>(t));
      }
    });
  });
}

void hyper_post(Context& ctx, const Tensor& a, const Tensor& post, const Tensor& comb,
                const Tensor& x) {
  int64_t rows = x.shape[0], c = x.shape[2];
  int r = static_cast<int>(x.shape[1]);
  expect_shape("hyper_post", "a", a, {rows, c});
  expect_dtype("hyper_post", "a", a, x.dtype);
  expect_shape("hyper_post", "post", post, {rows, r});
  expect_shape("hyper_post", "comb", comb, {rows, r, r});
  expect_adjacent("hyper_post", "x", x);
  HADAL_CHECK(r <= kMaxStreams, "[hyper_post] x " + x.describe() + ", more than 8 streams");
  int64_t width = std::min<int64_t>(c, 1024), cuts = (c + width - 1) / width;
  with_activation("hyper_post", x.dtype, [&](auto type) {
    using T = decltype(type);
    ctx.threads.run(rows * cuts, grain_of(width * r * 4), [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t t = i / cuts, c0 = i % cuts * width, c1 = std::min(c, c0 + width);
        const T* in = a.at<const T>(t);
        const float *p = post.at<const float>(t), *m = comb.at<const float>(t);
        if (r == 4) {
          expand4(in, p, m, x.at<T>(t, 0), x.at<T>(t, 1), x.at<T>(t, 2), x.at<T>(t, 3), c0, c1);
        } else {
          expand(in, p, m, x.at<T>(t), x.stride[1], r, c0, c1);
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
        mixes<T>(x, t, w.fn, p.norm_eps, pre);
        for (int j = 0; j < r; ++j) pre[j] = sigmoid(pre[j] * scale + base[j]) + p.eps;
        collapse(x.at<const T>(t), x.stride[1], pre, r, 0, c, y.at<T>(t));
      }
    });
  });
}

}  // namespace hadal
