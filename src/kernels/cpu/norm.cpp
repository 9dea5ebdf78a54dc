// RMS norm, RMS norm after a residual sum, layer norm: one row per item.
#include "kernels/norm.h"

#include "kernels/cpu/element.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/dispatch/kernels.h"

namespace hadal::cpu {
namespace {

struct WeightRow {};
struct SumRow {};

// The weight as fp32, converted where it is not; null where there is none.
const float* widened(Context& ctx, const char* op, const Tensor& w, int64_t n) {
  if (w.empty()) return nullptr;
  expect_shape(op, "w", w, {n});
  if (w.dtype == DType::kF32) return w.at<const float>();
  float* out = scratch<float, WeightRow>(n);
  if (w.dtype == DType::kBF16) {
    ctx.kernels.rows->bf16.widen(w.at<const BF16>(), n, out);
  } else {
    expect_dtype(op, "w", w, DType::kF16);
    for (int64_t i = 0; i < n; ++i) out[i] = f16_to_f32(w.at<const uint16_t>()[i]);
  }
  return out;
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
  HADAL_CHECK(x.rank == 2, std::string("[") + op + "] x is " + x.describe() + ", not [M, C]");
  expect_shape(op, "y", y, {x.shape[0], x.shape[1]});
  expect_dtype(op, "y", y, x.dtype);
  expect_adjacent(op, "x", x);
  expect_adjacent(op, "y", y);
}

}  // namespace

void rms_norm(Context& ctx, const Tensor& x, const Tensor& w, float eps, const Tensor& y) {
  check_rows("rms_norm", x, y);
  int64_t m = x.shape[0], c = x.shape[1];
  const float* weight = widened(ctx, "rms_norm", w, c);
  with_activation("rms_norm", x.dtype, [&](auto type) {
    using T = decltype(type);
    const auto& loops = ctx.kernels.rows->of(type);
    ctx.threads.run(m, grain_of(c), [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) loops.rms(x.at<const T>(i), weight, eps, c, y.at<T>(i));
    });
  });
}

void add_rms_norm(Context& ctx, const Tensor& residual, const Tensor& delta, const Tensor& w,
                  float eps, const Tensor& y) {
  if (delta.empty()) return cpu::rms_norm(ctx, residual, w, eps, y);
  check_rows("add_rms_norm", residual, y);
  check_rows("add_rms_norm", residual, delta);
  int64_t m = residual.shape[0], c = residual.shape[1];
  const float* weight = widened(ctx, "add_rms_norm", w, c);
  with_activation("add_rms_norm", residual.dtype, [&](auto type) {
    using T = decltype(type);
    const auto& loops = ctx.kernels.rows->of(type);
    ctx.threads.run(m, grain_of(c), [&](int64_t begin, int64_t end, int) {
      float* sum = scratch<float, SumRow>(c);
      for (int64_t i = begin; i < end; ++i)
        loops.add_rms(residual.at<T>(i), delta.at<const T>(i), weight, eps, c, sum, y.at<T>(i));
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
  with_weight("layer_norm", w.dtype, [&](auto weight_type) {
    using W = decltype(weight_type);
    with_activation("layer_norm", x.dtype, [&](auto type) {
      using T = decltype(type);
      ctx.threads.run(m, grain_of(c * 8), [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i)
          layer_norm_row(x.at<const T>(i), static_cast<const W*>(w.data),
                         static_cast<const W*>(b.data), eps, c, y.at<T>(i));
      });
    });
  });
}

}  // namespace hadal::cpu
