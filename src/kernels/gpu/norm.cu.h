// RMS norm (with the residual sum before it and the FP8 quantisation after it) and layer norm: one
// block per row. A portable GPU kernel (kl.h); contract in kernels/norm.h.
#pragma once

#include "kernels/cpu/element.h"
#include "kernels/gpu/kl.h"
#include "kernels/gpu/launchers.h"
#include "kernels/gpu/row_quant.cu.h"

namespace hadal::KL_TARGET {

inline constexpr int kNormThreads = 256;
inline constexpr int kNormLanes = 32;  // the narrowest warp: most columns of a block per lane

template <class T>
struct NormArgs {
  View<T> x, delta, y;  // x is the residual where delta is given; y may be null in the fused form
  AnyVector w, b;
  int64_t rows, columns;
  float eps;
  View<uint8_t> codes;
  View<float> scales;
  bool pow2;
};

template <class T>
KL_DEVICE float norm_input(const NormArgs<T>& a, int64_t row, int64_t c) {
  float v = load(*a.x.at(row, c));
  return a.delta ? v + load(*a.delta.at(row, c)) : v;
}

// One block of 128 columns by one warp: the residual, y, and the codes.
template <class T>
KL_DEVICE void norm_columns(const NormArgs<T>& a, int64_t row, int64_t block, float factor) {
  float v[kFp8Block / kNormLanes];
  int count = kFp8Block / kl::warp_size();
  int64_t first = block * kFp8Block + kl::lane();
  float amax = 0;
  KL_UNROLL
  for (int i = 0; i < count; ++i) {
    int64_t c = first + i * kl::warp_size();
    v[i] = 0;
    if (c >= a.columns) continue;
    float x = norm_input(a, row, c);
    if (a.delta) store(*a.x.at(row, c), x);
    v[i] = rounded_to<T>(a.w ? x * factor * a.w[c] : x * factor);
    if (a.y) store(*a.y.at(row, c), v[i]);
    amax = amax_of(amax, v[i]);
  }
  if (!a.codes) return;
  float scale = fp8_block_scale(kl::warp_max(amax), a.pow2);
  KL_UNROLL
  for (int i = 0; i < count; ++i) {
    int64_t c = first + i * kl::warp_size();
    if (c < a.columns) *a.codes.at(row, c) = fp8_code(v[i], scale);
  }
  if (kl::lane() == 0) *a.scales.at(row, block) = scale;
}

// limits: vgprs 96, lds 256
template <class T>
KL_KERNEL(kNormThreads)
rms_norm_kernel(NormArgs<T> a) {
  int64_t blocks = (a.columns + kFp8Block - 1) / kFp8Block;
  for (int64_t row = kl::block(); row < a.rows; row += kl::blocks()) {
    float squares = 0;
    for (int64_t c = kl::thread(); c < a.columns; c += kl::threads()) {
      float v = norm_input(a, row, c);
      squares += v * v;
    }
    squares = kl::block_sum(squares);
    float factor = 1.0f / sqrtf(squares / static_cast<float>(a.columns) + a.eps);
    for (int64_t b = kl::warp(); b < blocks; b += kl::warps()) norm_columns(a, row, b, factor);
  }
}

// limits: vgprs 96, lds 256
template <class T>
KL_KERNEL(kNormThreads)
layer_norm_kernel(NormArgs<T> a) {
  float n = static_cast<float>(a.columns);
  for (int64_t row = kl::block(); row < a.rows; row += kl::blocks()) {
    float sum = 0;
    for (int64_t c = kl::thread(); c < a.columns; c += kl::threads()) sum += load(*a.x.at(row, c));
    float mean = kl::block_sum(sum) / n, squares = 0;
    for (int64_t c = kl::thread(); c < a.columns; c += kl::threads()) {
      float v = load(*a.x.at(row, c)) - mean;
      squares += v * v;
    }
    float factor = 1.0f / sqrtf(kl::block_sum(squares) / n + a.eps);
    for (int64_t c = kl::thread(); c < a.columns; c += kl::threads())
      store(*a.y.at(row, c), (load(*a.x.at(row, c)) - mean) * factor * a.w[c] + a.b[c]);
  }
}

inline void check_norm(const char* op, const Tensor& x, const Tensor& w, const Tensor& y) {
  expect_shape(op, "y", y, {x.shape[0], x.shape[1]});
  expect_dtype(op, "y", y, x.dtype);
  expect_adjacent(op, "x", x);
  expect_adjacent(op, "y", y);
  if (!w.empty()) expect_shape(op, "w", w, {x.shape[1]});
}

template <class T>
NormArgs<T> norm_args(const Tensor& x, const Tensor& delta, const Tensor& w, float eps,
                      const Tensor& y) {
  NormArgs<T> a = {};
  a.x = view<T>(x);
  a.delta = view<T>(delta);
  a.y = view<T>(y);
  a.w = any_vector(w);
  a.rows = x.shape[0];
  a.columns = x.shape[1];
  a.eps = eps;
  return a;
}

void rms_norm(GpuStream s, const Tensor& x, const Tensor& w, float eps, const Tensor& y) {
  add_rms_norm(s, x, {}, w, eps, y);
}

void add_rms_norm(GpuStream s, const Tensor& residual, const Tensor& delta, const Tensor& w,
                  float eps, const Tensor& y) {
  check_norm("rms_norm", residual, w, y);
  if (!delta.empty()) check_norm("add_rms_norm", residual, w, delta);
  with_activation("rms_norm", residual.dtype, [&](auto type) {
    using T = decltype(type);
    kl::launch(rms_norm_kernel<T>, {kl::grid(s, residual.shape[0])}, kNormThreads, 0, s,
               norm_args<T>(residual, delta, w, eps, y));
  });
}

void add_rms_norm_quant(GpuStream s, const Tensor& residual, const Tensor& delta, const Tensor& w,
                        float eps, const Tensor& y, bool pow2, const Activation& out) {
  const char* op = "add_rms_norm_quant";
  int64_t rows = residual.shape[0], columns = residual.shape[1];
  if (!y.empty()) check_norm(op, residual, w, y);
  if (!delta.empty()) check_norm(op, residual, w, delta);
  expect_shape(op, "codes", out.data, {rows, columns});
  expect_dtype(op, "codes", out.data, DType::kF8E4M3);
  expect_shape(op, "scales", out.scale, {rows, (columns + kFp8Block - 1) / kFp8Block});
  with_activation(op, residual.dtype, [&](auto type) {
    using T = decltype(type);
    NormArgs<T> a = norm_args<T>(residual, delta, w, eps, y);
    a.codes = view<uint8_t>(out.data);
    a.scales = view<float>(out.scale);
    a.pow2 = pow2;
    kl::launch(rms_norm_kernel<T>, {kl::grid(s, rows)}, kNormThreads, 0, s, a);
  });
}

void layer_norm(GpuStream s, const Tensor& x, const Tensor& w, const Tensor& b, float eps,
                const Tensor& y) {
  check_norm("layer_norm", x, w, y);
  check_norm("layer_norm", x, b, y);
  with_activation("layer_norm", x.dtype, [&](auto type) {
    using T = decltype(type);
    NormArgs<T> a = norm_args<T>(x, {}, w, eps, y);
    a.b = any_vector(b);
    kl::launch(layer_norm_kernel<T>, {kl::grid(s, x.shape[0])}, kNormThreads, 0, s, a);
  });
}

}  // namespace hadal::KL_TARGET
