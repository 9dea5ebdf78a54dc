// The one place that decides in which number formats a model computes.
#pragma once

#include "base/dtype.h"

namespace hadal {

struct Numerics {
  DType activation = DType::kBF16;   // dtype of every activation buffer and cache entry
  bool quantize_activations = true;  // FP8 left operands for FP8 and FP4 weights
  bool quantize_cache = true;        // FP8 round trip of cache entries, Hadamard + FP4/FP8 indexer

  static constexpr Numerics release() { return {DType::kBF16, true, true}; }
  static constexpr Numerics exact() { return {DType::kF32, false, false}; }
};

}  // namespace hadal
