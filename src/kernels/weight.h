// A matrix as it lies in the checkpoint: never expanded, decoded in registers.
#pragma once

#include "base/tensor.h"

namespace hadal {

inline constexpr int64_t kFp8Block = 128;  // FP8 weights: one scale per 128 x 128
inline constexpr int64_t kFp4Block = 32;   // FP4 weights: one scale per row and 32 columns

// W [N, K] (out, in), row-major. The dtype of `data` says the format:
//   F32, BF16, F16   plain, no scale
//   F8_E4M3          scale [ceil(N/128), ceil(K/128)], F8_E8M0 or F32 multiplier
//   I8               packed FP4 [N, K/2], low nibble = even column; scale [N, K/32] F8_E8M0
// Edge blocks use the last row or column of the scale (spec V3.2 section 2.3).
struct Weight {
  Tensor data;
  Tensor scale;
  int64_t row0 = 0;  // FP8: row of `data` row 0 in the scaled matrix (a slice need not be aligned)

  bool empty() const { return data.empty(); }
  bool fp4() const { return data.dtype == DType::kI8; }
  bool fp8() const { return data.dtype == DType::kF8E4M3; }
  int64_t n() const { return data.shape[0]; }
  int64_t k() const { return fp4() ? data.shape[1] * 2 : data.shape[1]; }
  int64_t bytes() const { return data.bytes() + (scale.empty() ? 0 : scale.bytes()); }

  // Rows [begin, end) as a weight of their own.
  Weight rows(int64_t begin, int64_t end) const {
    Weight w = *this;
    w.data = data.slice(0, begin, end);
    if (fp4()) w.scale = scale.slice(0, begin, end);
    if (fp8()) w.row0 = row0 + begin;
    return w;
  }
};

// FP8: the fp32 scale of row n and column block kb.
inline float fp8_scale(const Weight& w, int64_t n, int64_t kb) {
  int64_t i = (w.row0 + n) / kFp8Block;
  return w.scale.dtype == DType::kF32 ? *w.scale.at<const float>(i, kb)
                                      : e8m0_to_f32(*w.scale.at<const uint8_t>(i, kb));
}

// The value of element (n, k): the definition that every kernel is tested against.
inline float weight_value(const Weight& w, int64_t n, int64_t k) {
  switch (w.data.dtype) {
    case DType::kF32:
      return *w.data.at<const float>(n, k);
    case DType::kBF16:
      return bf16_to_f32(*w.data.at<const BF16>(n, k));
    case DType::kF16:
      return f16_to_f32(*w.data.at<const uint16_t>(n, k));
    case DType::kF8E4M3:
      return e4m3_to_f32(*w.data.at<const uint8_t>(n, k)) * fp8_scale(w, n, k / kFp8Block);
    default: {
      uint8_t byte = *w.data.at<const uint8_t>(n, k / 2);
      return kE2M1[k % 2 ? byte >> 4 : byte & 15] *
             e8m0_to_f32(*w.scale.at<const uint8_t>(n, k / kFp4Block));
    }
  }
}

}  // namespace hadal
