// RMS norm (with the residual sum before it and the FP8 quantisation after it) and layer norm: one
// block per row. A portable GPU kernel (kl.h); contract in kernels/norm.h.
#pragma once

#include "kernels/cpu/element.h"
#include "kernels/gpu/kl.h"
#include "kernels/gpu/launchers.h"
#include "kernels/gpu/row_quant.cu.h"

namespace hadal::KL_TARGET {

inline constexpr int kNormThreads = 1024;  // at most: a warp for each 128 columns of a row
inline constexpr int kNormLanes = 32;      // the narrowest warp: most columns of a block per lane
inline constexpr int kNormPerLane = kFp8Block / kNormLanes;
inline constexpr int kLayerNormThreads = 256;
inline constexpr int kNormHeld = 2;  // blocks of 128 columns that a warp holds in registers

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

// One block of 128 columns in the registers of a warp: inputs and weights.
struct NormBlock {
  float x[kNormPerLane], w[kNormPerLane];
};

// All loads of a block, none waiting for another; zeros beyond the row.
template <class T>
KL_DEVICE void norm_load(const NormArgs<T>& a, int64_t row, int block, NormBlock& v) {
  int columns = static_cast<int>(a.columns), c = block * static_cast<int>(kFp8Block) + kl::lane();
  const T* x = a.x.at(row, 0);
  const T* delta = a.delta ? a.delta.at(row, 0) : nullptr;
  KL_UNROLL
  for (int i = 0; i < kNormPerLane; ++i) {
    v.x[i] = 0;
    v.w[i] = 1;
    bool mine = i < kFp8Block / kl::warp_size() && c < columns;
    if (mine) v.x[i] = load(x[c]) + (delta ? load(delta[c]) : 0.0f);
    if (mine && a.w) v.w[i] = a.w[c];
    c += kl::warp_size();
  }
}

// The residual, y, and the codes of a block.
template <class T>
KL_DEVICE void norm_store(const NormArgs<T>& a, int64_t row, int block, float factor,
                          const NormBlock& v) {
  int columns = static_cast<int>(a.columns), c = block * static_cast<int>(kFp8Block) + kl::lane();
  float y[kNormPerLane], amax = 0;
  KL_UNROLL
  for (int i = 0; i < kNormPerLane; ++i, c += kl::warp_size()) {
    y[i] = 0;
    if (i >= kFp8Block / kl::warp_size() || c >= columns) continue;
    if (a.delta) store(*a.x.at(row, c), v.x[i]);
    y[i] = rounded_to<T>(a.w ? v.x[i] * factor * v.w[i] : v.x[i] * factor);
    if (a.y) store(*a.y.at(row, c), y[i]);
    amax = amax_of(amax, y[i]);
  }
  if (!a.codes) return;
  float scale = fp8_block_scale(kl::warp_max(amax), a.pow2);
  c = block * static_cast<int>(kFp8Block) + kl::lane();
  KL_UNROLL
  for (int i = 0; i < kNormPerLane; ++i, c += kl::warp_size())
    if (i < kFp8Block / kl::warp_size() && c < columns) *a.codes.at(row, c) = fp8_code(y[i], scale);
  if (kl::lane() == 0) *a.scales.at(row, block) = scale;
}

KL_DEVICE float norm_squares(const NormBlock& v) {
  float sum = 0;
  KL_UNROLL
  for (int i = 0; i < kNormPerLane; ++i) sum += v.x[i] * v.x[i];
  return sum;
}

// A row's blocks of 128 columns go round the warps; the first ones stay in registers, those of very
// wide rows are read again.
// limits: vgprs 96, lds 256
template <class T>
KL_KERNEL(kNormThreads)
rms_norm_kernel(NormArgs<T> a) {
  int blocks = static_cast<int>((a.columns + kFp8Block - 1) / kFp8Block), warps = kl::warps();
  for (int64_t row = kl::block(); row < a.rows; row += kl::blocks()) {
    NormBlock held[kNormHeld], more;
    KL_UNROLL
    for (int h = 0; h < kNormHeld; ++h) norm_load(a, row, kl::warp() + h * warps, held[h]);
    float squares = 0;
    KL_UNROLL
    for (int h = 0; h < kNormHeld; ++h) squares += norm_squares(held[h]);
    for (int b = kl::warp() + kNormHeld * warps; b < blocks; b += warps) {
      norm_load(a, row, b, more);
      squares += norm_squares(more);
    }
    squares = kl::block_sum(squares);
    float factor = 1.0f / sqrtf(squares / static_cast<float>(a.columns) + a.eps);
    KL_UNROLL
    for (int h = 0; h < kNormHeld; ++h)
      if (kl::warp() + h * warps < blocks)
        norm_store(a, row, kl::warp() + h * warps, factor, held[h]);
    for (int b = kl::warp() + kNormHeld * warps; b < blocks; b += warps) {
      norm_load(a, row, b, more);
      norm_store(a, row, b, factor, more);
    }
  }
}

// One warp for each 128 columns as far as there are threads, and no fewer than two of any width.
inline int norm_threads(int64_t columns) {
  int64_t threads = (columns + kFp8Block - 1) / kFp8Block * 32;
  threads = (threads + 63) / 64 * 64;
  return static_cast<int>(threads < kNormThreads ? threads : kNormThreads);
}

// limits: vgprs 96, lds 256
template <class T>
KL_KERNEL(kLayerNormThreads)
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
    kl::launch(rms_norm_kernel<T>, {kl::grid(s, residual.shape[0])},
               norm_threads(residual.shape[1]), 0, s, norm_args<T>(residual, delta, w, eps, y));
  });
}

void add_rms_norm_fp8(GpuStream s, const Tensor& residual, const Tensor& delta, const Tensor& w,
                      float eps, const Tensor& y, bool pow2, const Activation& out) {
  const char* op = "add_rms_norm_fp8";
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
    kl::launch(rms_norm_kernel<T>, {kl::grid(s, rows)}, norm_threads(columns), 0, s, a);
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
    kl::launch(layer_norm_kernel<T>, {kl::grid(s, x.shape[0])}, kLayerNormThreads, 0, s, a);
  });
}

}  // namespace hadal::KL_TARGET
