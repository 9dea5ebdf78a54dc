// Matrix products with a checkpoint weight of any format: tiles of 32 rows and 64 columns, decoded
// to fp32 on their way into shared memory, 32 columns of K at a time in order, so that a row's
// result depends on that row alone. Plain FMA; matrix units are for the tuned kernels. Portable GPU
// kernels (kl.h); contract in kernels/linear.h.
#pragma once

#include "kernels/cpu/element.h"
#include "kernels/gpu/kl.h"
#include "kernels/gpu/launchers.h"
#include "kernels/gpu/linear_args.cu.h"

namespace hadal::KL_TARGET {

inline constexpr int kLinearThreads = 256;
inline constexpr int kLinearM = 32, kLinearN = 64, kLinearK = 32;
inline constexpr int kLinearRows = 2, kLinearColumns = 4;  // outputs per thread
inline constexpr int kLinearAcross = kLinearN / kLinearColumns;

struct LinearTile {
  float x[kLinearM][kLinearK + 1];
  float w[kLinearN][kLinearK + 1];
};

KL_DEVICE float linear_code(const LinearOperand& o, int64_t group, int64_t row, int64_t column) {
  const char* base = o.data + group * o.group;
  int64_t at = row * o.stride + column;
  switch (o.dtype) {
    case DType::kF32:
      return reinterpret_cast<const float*>(base)[at];
    case DType::kBF16:
      return bf16_to_f32(reinterpret_cast<const BF16*>(base)[at]);
    case DType::kF16:
      return f16_to_f32(reinterpret_cast<const uint16_t*>(base)[at]);
    case DType::kF8E4M3:
      return e4m3_to_f32(reinterpret_cast<const uint8_t*>(base)[at]);
    default: {  // two FP4 codes per byte
      uint8_t byte = reinterpret_cast<const uint8_t*>(base)[row * o.stride + column / 2];
      return e2m1_to_f32(column % 2 ? byte >> 4 : byte & 15);
    }
  }
}

// Scale of the block that holds element (row, column) of the checkpoint's matrix.
KL_DEVICE float linear_scale(const LinearArgs& a, int64_t group, int64_t row, int64_t column) {
  const char* base = a.w_scale + group * a.w_scale_group;
  if (a.w.dtype == DType::kI8)
    return e8m0_to_f32(
        reinterpret_cast<const uint8_t*>(base)[row * a.w_scale_stride + column / kFp4Block]);
  if (a.w.dtype != DType::kF8E4M3) return 1.0f;
  int64_t at =
      (a.row0 + group * a.row0_group + row) / kFp8Block * a.w_scale_stride + column / kFp8Block;
  return a.w_scale_dtype == DType::kF32 ? reinterpret_cast<const float*>(base)[at]
                                        : e8m0_to_f32(reinterpret_cast<const uint8_t*>(base)[at]);
}

// Rows [m0, end) of x and columns n0.. of the output, for k0.. of K; zeros beyond the edges.
KL_DEVICE void linear_load(const LinearArgs& a, int64_t group, int64_t m0, int64_t end, int64_t n0,
                           int64_t k0, LinearTile& tile) {
  KL_UNROLL_BY(1)
  for (int i = kl::thread(); i < kLinearM * kLinearK; i += kl::threads()) {
    int64_t m = m0 + i / kLinearK, k = k0 + i % kLinearK;
    bool inside = m < end && k < a.k;
    int64_t row = inside && a.rows ? a.rows[m] : m;
    tile.x[i / kLinearK][i % kLinearK] = inside ? linear_code(a.x, group, row, k) : 0.0f;
  }
  KL_UNROLL_BY(1)
  for (int i = kl::thread(); i < kLinearN * kLinearK; i += kl::threads()) {
    int64_t n = n0 + i / kLinearK, k = k0 + i % kLinearK;
    float v = 0;
    if (n < a.n && k < a.k) {
      int64_t row = a.transposed ? k : n, column = a.transposed ? n : k;
      v = linear_code(a.w, group, row, column);
      if (!a.x_scale && a.w_scale) v *= linear_scale(a, group, row, column);
    }
    tile.w[i / kLinearK][i % kLinearK] = v;
  }
  kl::sync();
}

using LinearSums = float[kLinearRows][kLinearColumns];

// Ends a block of scaled columns: its sums, times both scales, go to the total.
KL_DEVICE void linear_fold(const LinearArgs& a, int64_t group, int64_t m0, int64_t end, int64_t n0,
                           int64_t k0, LinearSums& part, LinearSums& total) {
  KL_UNROLL
  for (int i = 0; i < kLinearRows; ++i) {
    int64_t m = m0 + i;
    float x_scale = m < end ? *a.x_scale.at(a.rows ? a.rows[m] : m, k0 / kFp8Block) : 0.0f;
    KL_UNROLL
    for (int j = 0; j < kLinearColumns; ++j) {
      int64_t n = n0 + j * kLinearAcross;
      float w_scale = n < a.n ? linear_scale(a, group, n, k0) : 0.0f;
      total[i][j] += part[i][j] * (x_scale * w_scale);
      part[i][j] = 0;
    }
  }
}

// The outputs of one tile: rows [m0, end), at most 32, and columns [n0, n0 + 64).
KL_DEVICE void linear_tile(const LinearArgs& a, int64_t group, int64_t m0, int64_t end, int64_t n0,
                           LinearTile& tile) {
  int tm = kl::thread() / kLinearAcross * kLinearRows, tn = kl::thread() % kLinearAcross;
  LinearSums total = {}, part = {};
  int64_t block = a.w.dtype == DType::kI8 ? kFp4Block : kFp8Block;
  KL_UNROLL_BY(1)
  for (int64_t k0 = 0; k0 < a.k; k0 += kLinearK) {
    linear_load(a, group, m0, end, n0, k0, tile);
    KL_UNROLL_BY(4)
    for (int k = 0; k < kLinearK; ++k) {
      KL_UNROLL
      for (int j = 0; j < kLinearColumns; ++j) {
        float w = tile.w[tn + j * kLinearAcross][k];
        KL_UNROLL
        for (int i = 0; i < kLinearRows; ++i) part[i][j] += tile.x[tm + i][k] * w;
      }
    }
    kl::sync();  // the next load overwrites the tile
    bool block_ends = (k0 + kLinearK) % block == 0 || k0 + kLinearK >= a.k;
    if (a.x_scale && block_ends) linear_fold(a, group, m0 + tm, end, n0 + tn, k0, part, total);
  }
  if (!a.x_scale) {
    KL_UNROLL
    for (int i = 0; i < kLinearRows * kLinearColumns; ++i)
      total[i / kLinearColumns][i % kLinearColumns] = part[i / kLinearColumns][i % kLinearColumns];
  }
  KL_UNROLL
  for (int i = 0; i < kLinearRows; ++i) {
    KL_UNROLL
    for (int j = 0; j < kLinearColumns; ++j) {
      int64_t m = m0 + tm + i, n = n0 + tn + j * kLinearAcross;
      int64_t at = m * a.y_stride + group * a.y_group + n;
      float v = total[i][j];
      if (m < end && n < a.n) {
        if (a.y_dtype == DType::kF32)
          reinterpret_cast<float*>(a.y)[at] = v;
        else
          store(reinterpret_cast<BF16*>(a.y)[at], v);
      }
    }
  }
}

// Work is (group, tile of columns, tile of rows); for experts (group, tile of columns), whose rows
// only the device knows.
// limits: vgprs 128, lds 13312
KL_KERNEL(kLinearThreads) linear_kernel(LinearArgs a) {
  KL_SHARED(LinearTile, tile, );
  int64_t across = (a.n + kLinearN - 1) / kLinearN;
  int64_t down = a.offsets ? 1 : (a.m + kLinearM - 1) / kLinearM;
  for (int64_t i = kl::block(); i < a.groups * across * down; i += kl::blocks()) {
    int64_t n0 = i % across * kLinearN, group = i / across / down;
    int64_t m0 = i / across % down * kLinearM, end = m0 + kLinearM < a.m ? m0 + kLinearM : a.m;
    if (a.offsets) {
      m0 = a.offsets[group];
      end = a.offsets[group + 1];
    }
    for (; m0 < end; m0 += kLinearM)
      linear_tile(a, group, m0, end < m0 + kLinearM ? end : m0 + kLinearM, n0, tile);
  }
}

inline void launch_linear(GpuStream s, const LinearArgs& a) {
  int64_t across = (a.n + kLinearN - 1) / kLinearN;
  int64_t down = a.offsets ? 1 : (a.m + kLinearM - 1) / kLinearM;
  kl::launch(linear_kernel, {kl::grid(s, a.groups * across * down)}, kLinearThreads, 0, s, a);
}

void linear(GpuStream s, const Activation& x, const Weight& w, const Tensor& y) {
  launch_linear(s, linear_problem(x, w, y));
}

void grouped_linear(GpuStream s, const Activation& x, const int32_t* rows, const int32_t* offsets,
                    std::span<const Weight> experts, const Tensor& y) {
  launch_linear(s, grouped_problem(x, rows, offsets, experts, y));
}

void batched_linear(GpuStream s, const Tensor& x, std::span<const Weight> w, const Tensor& y) {
  launch_linear(s, batched_problem(x, w, y, false));
}

void batched_linear_transposed(GpuStream s, const Tensor& x, std::span<const Weight> w,
                               const Tensor& y) {
  launch_linear(s, batched_problem(x, w, y, true));
}

}  // namespace hadal::KL_TARGET
