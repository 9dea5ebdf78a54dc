// All that forward() receives for one step: plain data that the engine fills and a rank reads.
// The step may mix sequences at any point of their life: chunks of a prompt beside single tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/batch.h"

namespace hadal {

inline constexpr int kMaxCacheGroups = 2;

struct Step {
  Batch batch;                             // rows, sequences, positions
  const int32_t* ids = nullptr;            // [T] token ids, each in [0, V)
  PageTable pages[kMaxCacheGroups];        // one table per group of cache/layout.h
  const int32_t* logit_rows = nullptr;     // [n] rows whose logits are wanted
  int32_t logit_count = 0;
};

}  // namespace hadal
