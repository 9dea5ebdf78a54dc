// Matrix products with a checkpoint weight of any format: tiles of 32 rows and 64 columns, decoded
// to fp32 on their way into shared memory, 32 columns of K at a time in order, so that a row's
// result depends on that row alone. Plain FMA; matrix units are for the tuned kernels. Portable GPU
// kernels (kl.h); contract in kernels/linear.h.
#pragma once

#include "kernels/cpu/element.h"
#include "kernels/gpu/kl.h"
#include "kernels/gpu/launchers.h"

namespace hadal::KL_TARGET {

inline constexpr int kLinearThreads = 256;
inline constexpr int kLinearM = 32, kLinearN = 64, kLinearK = 32;
inline constexpr int kLinearRows = 2, kLinearColumns = 4;  // outputs per thread
inline constexpr int kLinearAcross = kLinearN / kLinearColumns;

// A matrix of any format; group g begins g * group bytes later.
struct LinearOperand {
  const char* data;
  int64_t stride, group;  // elements, bytes
  DType dtype;
};

struct LinearArgs {
  LinearOperand x, w;
  View<float> x_scale;  // null: x holds values, not codes
  const char* w_scale;
  int64_t w_scale_stride, w_scale_group, row0, row0_group;  // elements, bytes, rows, rows
  DType w_scale_dtype;
  char* y;
  int64_t y_stride, y_group;  // elements
  DType y_dtype;
  int64_t m, n, k, groups;        // n outputs, k summed
  const int32_t *rows, *offsets;  // experts: where x rows come from, and each expert's rows of y
  bool transposed;                // w is [k, n]
};

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

inline LinearArgs linear_args(const Tensor& x, std::span<const Weight> w, const Tensor& y) {
  LinearArgs a = {};
  const Weight& first = w[0];
  a.groups = static_cast<int64_t>(w.size());
  a.x = {static_cast<const char*>(x.data), x.stride[0], 0, x.dtype};
  a.w = {static_cast<const char*>(first.data.data), first.data.stride[0], 0, first.data.dtype};
  a.w_scale = static_cast<const char*>(first.scale.data);
  a.w_scale_stride = first.scale.stride[0];
  a.w_scale_dtype = first.scale.dtype;
  a.row0 = first.row0;
  a.y = static_cast<char*>(y.data);
  a.y_stride = y.stride[0];
  a.y_dtype = y.dtype;
  a.m = x.shape[0];
  a.n = first.n();
  a.k = first.k();
  auto apart = [](const Tensor& p, const Tensor& q) {
    return static_cast<const char*>(q.data) - static_cast<const char*>(p.data);
  };
  for (size_t g = 1; g < w.size(); ++g) {
    if (g == 1) {
      a.w.group = apart(w[0].data, w[1].data);
      a.w_scale_group = apart(w[0].scale, w[1].scale);
      a.row0_group = w[1].row0 - w[0].row0;
    }
    HADAL_CHECK(apart(w[g - 1].data, w[g].data) == a.w.group &&
                    apart(w[g - 1].scale, w[g].scale) == a.w_scale_group &&
                    w[g].row0 - w[g - 1].row0 == a.row0_group && w[g].n() == a.n &&
                    w[g].k() == a.k && w[g].data.dtype == a.w.dtype,
                "[linear] the weights of a list must have one shape and lie at equal distances");
  }
  return a;
}

inline void launch_linear(GpuStream s, const LinearArgs& a) {
  HADAL_CHECK(a.w.dtype != DType::kI8 || (!a.transposed && a.k % kFp4Block == 0),
              "[linear] FP4 W with " + std::to_string(a.k) + " columns");
  HADAL_CHECK(a.y_dtype == DType::kF32 || a.y_dtype == DType::kBF16,
              std::string("[linear] y of dtype ") + dtype_name(a.y_dtype));
  int64_t across = (a.n + kLinearN - 1) / kLinearN;
  int64_t down = a.offsets ? 1 : (a.m + kLinearM - 1) / kLinearM;
  kl::launch(linear_kernel, {kl::grid(s, a.groups * across * down)}, kLinearThreads, 0, s, a);
}

void linear(GpuStream s, const Activation& x, const Weight& w, const Tensor& y) {
  expect_shape("linear", "x", x.data, {x.data.shape[0], w.k()});
  expect_shape("linear", "y", y, {x.data.shape[0], w.n()});
  expect_adjacent("linear", "x", x.data);
  expect_adjacent("linear", "y", y);
  LinearArgs a = linear_args(x.data, {&w, 1}, y);
  if (x.data.dtype == DType::kF8E4M3) a.x_scale = view<float>(x.scale);
  launch_linear(s, a);
}

void grouped_linear(GpuStream s, const Activation& x, const int32_t* rows, const int32_t* offsets,
                    std::span<const Weight> experts, const Tensor& y) {
  expect_shape("grouped_linear", "x", x.data, {x.data.shape[0], experts[0].k()});
  expect_shape("grouped_linear", "y", y, {y.shape[0], experts[0].n()});
  expect_adjacent("grouped_linear", "x", x.data);
  expect_adjacent("grouped_linear", "y", y);
  LinearArgs a = linear_args(x.data, experts, y);
  if (x.data.dtype == DType::kF8E4M3) a.x_scale = view<float>(x.scale);
  a.rows = rows;
  a.offsets = offsets;
  launch_linear(s, a);
}

inline void launch_batched(GpuStream s, const Tensor& x, std::span<const Weight> w, const Tensor& y,
                           bool transposed) {
  const char* op = "batched_linear";
  int64_t m = x.shape[0], groups = static_cast<int64_t>(w.size());
  int64_t in = transposed ? w[0].n() : w[0].k(), out = transposed ? w[0].k() : w[0].n();
  expect_shape(op, "x", x, {m, groups, in});
  expect_shape(op, "y", y, {m, groups, out});
  expect_adjacent(op, "x", x);
  expect_adjacent(op, "y", y);
  LinearArgs a = linear_args(x, w, y);
  a.x.group = x.stride[1] * dtype_size(x.dtype);
  a.y_group = y.stride[1];
  a.n = out;
  a.k = in;
  a.transposed = transposed;
  launch_linear(s, a);
}

void batched_linear(GpuStream s, const Tensor& x, std::span<const Weight> w, const Tensor& y) {
  launch_batched(s, x, w, y, false);
}

void batched_linear_transposed(GpuStream s, const Tensor& x, std::span<const Weight> w,
                               const Tensor& y) {
  launch_batched(s, x, w, y, true);
}

}  // namespace hadal::KL_TARGET
