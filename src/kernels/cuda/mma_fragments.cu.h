// From the bytes of a matrix product's operands to fragments of mma: which columns a lane reads,
// how it decodes them, and where they lie in shared memory. The sum over K takes its columns in any
// order, as long as both operands take the same: lane t of a quad reads a run of adjacent columns
// of its row, four of which are its share of one mma. So a lane's 16-byte load is its fragments.
#pragma once

#include "kernels/cuda/mma.cu.h"
#include "kernels/gpu/linear_args.cu.h"
#include "kernels/gpu/linear_decode.cu.h"

namespace hadal::KL_TARGET {

inline constexpr int kStepColumns = 128;  // of K: one block of FP8 scales

// Columns of a run, runs that a lane has of a step, and bytes.
template <class W>
inline constexpr int kRun = W::kPerWord == 8 ? 32 : 16;
template <class W>
inline constexpr int kRuns = kStepColumns / 4 / kRun<W>;
template <class F, class W>
inline constexpr int kRunBytes = kRun<W> * 4 / F::kPerWord;
template <class F>
inline constexpr int kStepBytes = kStepColumns * 4 / F::kPerWord;

// FP8 x FP8 is exact in f16; all else is a product of bf16.
template <class X, class W>
inline constexpr Half kMath = X::kPerWord == 4 && W::kPerWord == 4 ? Half::kF16 : Half::kBF16;

// FP4's sums are this much too small: its codes are decoded as 2^-126 of their values, and scales
// are multiplied in as 2^63 of theirs, so that neither leaves bf16's range.
template <class W>
inline constexpr float kSumUnit = W::kPerWord == 8 ? 0x1p63f : 1.0f;

// Two bf16: 2^63 times an E8M0 scale; NaN for the scale NaN, and from 2^65 on.
HADAL_HD constexpr uint32_t fp4_multiplier(uint8_t scale) {
  uint32_t half = scale > 191 ? 0x7fc0u : (scale + 63u) << 7;
  return half | half << 16;
}

// The columns of run-relative number 0.. that the halves of registers (low, high) hold for
// product q of a run: low0, low1, high0, high1. FP4's nibbles are nearest to each other so.
template <class W>
HADAL_HD constexpr int mma_column(int q, int i) {
  if (W::kPerWord == 8) return q / 2 * 8 + q % 2 * 2 + i / 2 + i % 2 * 4;
  return q * 4 + i;
}

// Words of a run of W -> the columns above of product q; `multiplier` is of FP4.
template <class X, class W>
KL_DEVICE void w_fragment(const uint32_t* run, int q, uint32_t multiplier, uint32_t (&out)[2]) {
  if constexpr (W::kPerWord == 8) {
    for (int i = 0; i < 2; ++i)
      out[i] = times_bf16(e2m1_to_bf16(run[q / 2], q % 2 * 2 + i), multiplier);
  } else if constexpr (W::kPerWord == 2) {
    out[0] = run[2 * q];
    out[1] = run[2 * q + 1];
  } else if constexpr (kMath<X, W> == Half::kF16) {
    e4m3x4_to_f16(run[q], out);
  } else {
    float v[4];
    e4m3x4_to_f32(run[q], v);
    out[0] = pack_bf16(v[0], v[1]);
    out[1] = pack_bf16(v[2], v[3]);
  }
}

// Products that 16 bytes of x are enough for.
template <class X>
inline constexpr int kUnitProducts = X::kPerWord;

// 16 bytes of a run of x -> the columns of product q of these bytes.
template <class X, class W>
KL_DEVICE void x_fragment(const Bits128& unit, int q, uint32_t (&out)[2]) {
  constexpr bool kSplit = W::kPerWord == 8;
  if constexpr (X::kPerWord == 2 && kSplit) {
    out[0] = low_halves(unit.word[q], unit.word[q + 2]);
    out[1] = high_halves(unit.word[q], unit.word[q + 2]);
  } else if constexpr (X::kPerWord == 2) {
    out[0] = unit.word[2 * q];
    out[1] = unit.word[2 * q + 1];
  } else if constexpr (kMath<X, W> == Half::kF16) {
    e4m3x4_to_f16(unit.word[q], out);
  } else if constexpr (kSplit) {
    float near[4], far[4];
    e4m3x4_to_f32(unit.word[q / 2 * 2], near);
    e4m3x4_to_f32(unit.word[q / 2 * 2 + 1], far);
    for (int i = 0; i < 2; ++i) out[i] = pack_bf16(near[q % 2 * 2 + i], far[q % 2 * 2 + i]);
  } else {
    float v[4];
    e4m3x4_to_f32(unit.word[q], v);
    out[0] = pack_bf16(v[0], v[1]);
    out[1] = pack_bf16(v[2], v[3]);
  }
}

// Where unit (16 bytes) `unit` of a row of a step lies: the eight lanes of two rows that read at
// once, with kUnits units in each lane's run, meet eight different groups of four banks.
template <int kUnits>
HADAL_HD constexpr int swizzle(int row, int unit) {
  if (kUnits == 1) return unit ^ (row & 1) << 2;
  if (kUnits == 2) return unit ^ (row & 1);
  return unit ^ (row & 1) << 1 ^ (unit >> 3 & 1);
}
// FP4's rows are four units long: two rows are eight without that.
template <class F, class W>
HADAL_HD constexpr int shared_unit(int row, int unit) {
  if (F::kPerWord == 8) return unit;
  return swizzle<kRunBytes<F, W> / 16>(row, unit);
}

// FP8: the scale of W's row n for step k of the columns.
KL_DEVICE float fp8_w_scale(const LinearArgs& a, int64_t group, int64_t n, int64_t k) {
  const char* base = a.w_scale + group * a.w_scale_group;
  int64_t at = (a.row0 + group * a.row0_group + n) / kFp8Block * a.w_scale_stride + k;
  return a.w_scale_dtype == DType::kF32 ? reinterpret_cast<const float*>(base)[at]
                                        : scale_value(reinterpret_cast<const uint8_t*>(base)[at]);
}

// FP4: the scale of W's row n for the run of lane t of a quad in step k.
KL_DEVICE uint8_t fp4_w_scale(const LinearArgs& a, int64_t group, int64_t n, int64_t k, int t) {
  const char* base = a.w_scale + group * a.w_scale_group;
  return reinterpret_cast<const uint8_t*>(base)[n * a.w_scale_stride + k * 4 + t];
}

}  // namespace hadal::KL_TARGET
