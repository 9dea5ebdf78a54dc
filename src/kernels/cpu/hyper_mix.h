// From the mixes of one token to its three maps: the small part of mHC that every candidate of
// hyper_pre shares (spec V4 3.8). R streams, at most kMaxStreams.
#pragma once

#include "kernels/cpu/element.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/hyper.h"

namespace hadal {

inline constexpr int kMaxStreams = 8, kMaxMaps = 2 * kMaxStreams + kMaxStreams * kMaxStreams;

inline float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

// C <- softmax over the destinations + eps, then columns and rows in turn, columns last.
inline void sinkhorn(float* c, int r, int iterations, float eps) {
  auto columns = [&] {
    for (int k = 0; k < r; ++k) {
      float sum = eps;
      for (int j = 0; j < r; ++j) sum += c[j * r + k];
      for (int j = 0; j < r; ++j) c[j * r + k] /= sum;
    }
  };
  for (int j = 0; j < r; ++j) {
    float* row = c + j * r;
    float top = *std::max_element(row, row + r), sum = 0;
    for (int k = 0; k < r; ++k) sum += row[k] = std::exp(row[k] - top);
    for (int k = 0; k < r; ++k) row[k] = row[k] / sum + eps;
  }
  columns();
  for (int i = 1; i < iterations; ++i) {
    for (int j = 0; j < r; ++j) {
      float* row = c + j * r;
      float sum = eps;
      for (int k = 0; k < r; ++k) sum += row[k];
      for (int k = 0; k < r; ++k) row[k] /= sum;
    }
    columns();
  }
}

// m [2R + R*R] normalised mixes -> pre [R], post [R], comb [R, R].
inline void hyper_maps(const float* m, int r, const HyperWeights& w, const HyperParams& p,
                       float* pre, float* post, float* comb) {
  const float *base = w.base.at<const float>(), *scale = w.scale.at<const float>();
  for (int j = 0; j < r; ++j) pre[j] = sigmoid(m[j] * scale[0] + base[j]) + p.eps;
  for (int k = 0; k < r; ++k) post[k] = 2.0f * sigmoid(m[r + k] * scale[1] + base[r + k]);
  for (int i = 2 * r; i < 2 * r + r * r; ++i) comb[i - 2 * r] = m[i] * scale[2] + base[i];
  sinkhorn(comb, r, p.sinkhorn_iters, p.eps);
}

// y = sum_j pre[j] X[j].  x [R, C] of one token with streams `stride` apart.
template <class T>
void collapse(const RowLoops<T>& loops, const T* x, int64_t stride, const float* pre, int r,
              int64_t n, T* y) {
  if (r == 4) return loops.collapse4(x, stride, pre, n, y);
  for (int64_t c = 0; c < n; ++c) {
    float sum = 0;
    for (int j = 0; j < r; ++j) sum += pre[j] * load(x[j * stride + c]);
    store(y[c], sum);
  }
}

// m[i] = (fn_i . v) * rsqrt(mean(v^2) + eps) with v the streams of row t after each other, in
// double.
template <class T>
void mixes_double(const Tensor& x, int64_t t, const Tensor& fn, float eps, float* m) {
  int64_t r = x.shape[1], c = x.shape[2];
  double squares = 0;
  for (int64_t j = 0; j < r; ++j)
    squares += dot_double(x.at<const T>(t, j), x.at<const T>(t, j), c);
  double factor = 1.0 / std::sqrt(squares / static_cast<double>(r * c) + eps);
  for (int64_t i = 0; i < fn.shape[0]; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < r; ++j)
      sum += dot_double(x.at<const T>(t, j), fn.at<const float>(i, j * c), c);
    m[i] = static_cast<float>(sum * factor);
  }
}

inline void check_hyper_pre(const Tensor& x, const HyperWeights& w, const HyperParams& p,
                            const Tensor& y, const Tensor& post, const Tensor& comb) {
  const char* op = "hyper_pre";
  int64_t t = x.shape[0], r = x.shape[1], c = x.shape[2], n = 2 * r + r * r;
  HADAL_CHECK(r >= 1 && r <= kMaxStreams && p.sinkhorn_iters >= 1,
              "[hyper_pre] x " + x.describe() + ", at most 8 streams are supported");
  expect_shape(op, "fn", w.fn, {n, r * c});
  expect_shape(op, "base", w.base, {n});
  expect_shape(op, "scale", w.scale, {3});
  for (const Tensor* f : {&w.fn, &w.base, &w.scale, &post, &comb})
    expect_dtype(op, "fn, base, scale, post, comb", *f, DType::kF32);
  expect_shape(op, "y", y, {t, c});
  expect_dtype(op, "y", y, x.dtype);
  expect_shape(op, "post", post, {t, r});
  expect_shape(op, "comb", comb, {t, r, r});
  for (const Tensor* f : {&x, &y, &w.fn}) expect_adjacent(op, "x, y, fn", *f);
}

}  // namespace hadal
