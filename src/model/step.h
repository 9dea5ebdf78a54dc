// All that forward() receives for one step: plain data that the engine fills and a rank reads.
// The step may mix sequences at any point of their life: chunks of a prompt beside single tokens.
#pragma once

#include <cstdint>

#include "kernels/batch.h"

namespace hadal {

// Entry streams with one entry per `ratio` tokens share page tables: a group. V3.x has one group
// (ratio 1), V4 one for each compression ratio. cache/layout.h numbers them.
inline constexpr int kMaxCacheGroups = 4;

// What the tokens of all sequences have left behind in one layer. Pools [P, page_size, D] are
// indexed through the page table of the layer's group, rings [slots, capacity, D] by slot.
struct LayerCache {
  int group = -1;             // which of Step::pages; -1: the layer has no paged entries
  Tensor entries;             // V3.x: latent c | k_pe; V4: compressed kv
  Tensor index_keys;          // layers with an indexer
  Tensor window;              // V4: ring of the last window entries
  Tensor compressor;          // V4, ratio > 0: ring of f32 rows u | g
  Tensor indexer_compressor;  // V4, ratio 4: the same for the indexer
};

struct Step {
  Batch batch;                          // rows, sequences, positions
  const int32_t* ids = nullptr;         // [T] token ids, each in [0, V)
  PageTable pages[kMaxCacheGroups];     // by cache group
  const LayerCache* caches = nullptr;   // [layers]
  const int32_t* logit_rows = nullptr;  // [n] rows whose logits are wanted
  int32_t logit_count = 0;
};

}  // namespace hadal
