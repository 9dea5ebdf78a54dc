// RMS norm, RMS norm after a residual sum, layer norm: one row per item.
#include "kernels/cpu/element.h"
#include "kernels/norm.h"

namespace hadal {
namespace {

// y = x * factor * w, one rounding. w may be null.
template <class W, class X, class T>
void scale_row(const X* x, float factor, const W* w, int64_t n, T* y) {
  if (w) {
    for (int64_t i = 0; i < n; ++i) store(y[i], load(x[i]) * factor * load(w[i]));
  } else {
    for (int64_t i = 0; i < n; ++i) store(y[i], load(x[i]) * factor);
  }
}

template <class X>
float rms_factor(const X* x, int64_t n, float eps) {
  return static_cast<float>(1.0 / std::sqrt(sum_squares(x, n) / static_cast<double>(n) + eps));
}

struct SumRow {};

template <class W, class T>
void add_rms_row(T* residual, const T* delta, const W* w, float eps, int64_t n, T* y) {
  float* sum = scratch<float, SumRow>(n);
  for (int64_t i = 0; i < n; ++i) sum[i] = load(residual[i]) + load(delta[i]);
  for (int64_t i = 0; i < n; ++i) store(residual[i], sum[i]);
  scale_row(sum, rms_factor(sum, n, eps), w, n, y);
}

// In double: the mean may be large beside the deviations. Rows are index keys, 128 wide.
template <class W, class T>
void layer_norm_row(const T* x, const W* w, const W* b, float eps, int64_t n, T* y) {
  double mean = 0, variance = 0;
  for (int64_t i = 0; i < n; ++i) mean += load(x[i]);
  mean /= static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i) variance += (load(x[i]) - mean) * (load(x[i]) - mean);
  double factor = 1.0 / std::sqrt(variance / static_cast<double>(n) + eps);
  for (int64_t i = 0; i < n; ++i)
    store(y[i], static_cast<float>((load(x[i]) - mean) * factor * load(w[i]) + load(b[i])));
}

void check_rows(const char* op, const Tensor& x, const Tensor& y) {
  expect_shape(op, "y", y, {x.shape[0], x.shape[1]});
  expect_dtype(op, "y", y, x.dtype);
  expect_adjacent(op, "x", x);
  expect_adjacent(op, "y", y);
}

// Calls f(W{}, T{}); an absent weight counts as F32.
template <class F>
void with_types(const char* op, const Tensor& w, const Tensor& x, F&& f) {
  with_weight(op, w.empty() ? DType::kF32 : w.dtype,
              [&](auto wt) { with_activation(op, x.dtype, [&](auto xt) { f(wt, xt); }); });
}

}  // namespace

void rms_norm(Context& ctx, const Tensor& x, const Tensor& w, float eps, const Tensor& y) {
  check_rows("rms_norm", x, y);
  int64_t m = x.shape[0], c = x.shape[1];
  if (!w.empty()) expect_shape("rms_norm", "w", w, {c});
  with_types("rms_norm", w, x, [&](auto wt, auto xt) {
    using W = decltype(wt);
    using T = decltype(xt);
    const W* weight = static_cast<const W*>(w.data);
    ctx.threads.run(m, grain_of(c), [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const T* row = x.at<const T>(i);
        scale_row(row, rms_factor(row, c, eps), weight, c, y.at<T>(i));
      }
    });
  });
}

void add_rms_norm(Context& ctx, const Tensor& residual, const Tensor& delta, const Tensor& w,
                  float eps, const Tensor& y) {
  if (delta.empty()) return rms_norm(ctx, residual, w, eps, y);
  check_rows("add_rms_norm", residual, y);
  check_rows("add_rms_norm", residual, delta);
  int64_t m = residual.shape[0], c = residual.shape[1];
  if (!w.empty()) expect_shape("add_rms_norm", "w", w, {c});
  with_types("add_rms_norm", w, residual, [&](auto wt, auto xt) {
    using W = decltype(wt);
    using T = decltype(xt);
    ctx.threads.run(m, grain_of(c), [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i)
        add_rms_row(residual.at<T>(i), delta.at<const T>(i), static_cast<const W*>(w.data), eps, c,
                    y.at<T>(i));
    });
  });
}

void layer_norm(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& b, float eps,
                const Tensor& y) {
  check_rows("layer_norm", x, y);
  int64_t m = x.shape[0], c = x.shape[1];
  expect_shape("layer_norm", "w", w, {c});
  expect_shape("layer_norm", "b", b, {c});
  expect_dtype("layer_norm", "b", b, w.dtype);
  with_types("layer_norm", w, x, [&](auto wt, auto xt) {
    using W = decltype(wt);
    using T = decltype(xt);
    ctx.threads.run(m, grain_of(c), [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i)
        layer_norm_row(x.at<const T>(i), static_cast<const W*>(w.data),
                       static_cast<const W*>(b.data), eps, c, y.at<T>(i));
    });
  });
}

}  // namespace hadal
