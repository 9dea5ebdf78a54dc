// What a model keeps per token and per sequence, layer by layer: the one formula behind the pool,
// `hadal plan` and `hadal inspect`. Source: spec V4 section 7, spec V3.2 3.6.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "model/numerics.h"
#include "model/step.h"

namespace hadal {

// Tokens that a sequence may take back after they were run (rejected drafts).
inline constexpr int64_t kMaxRewind = 8;
inline constexpr int32_t kPageSize = 64;  // entries per page

// Layers whose entries cover the same tokens share pages: page i of a group is page i in each of
// its layers' pools.
struct CacheGroup {
  int ratio = 1;  // tokens per entry
};

struct LayerCacheShape {
  int group = -1;                   // -1: no paged entries
  int64_t entry_width = 0;          // elements of activation dtype
  int64_t index_width = 0;          // elements of activation dtype, 0 = no indexer
  int64_t window_capacity = 0;      // ring rows
  int64_t window_width = 0;         // elements of activation dtype
  int64_t compressor_capacity = 0;  // ring rows
  int64_t compressor_width = 0;     // f32 elements
  int64_t indexer_compressor_width = 0;
};

struct CacheLayout {
  DType dtype = DType::kBF16;
  std::vector<CacheGroup> groups;
  std::vector<LayerCacheShape> layers;

  // Bytes of one page over all layers of a group.
  int64_t page_bytes(int group) const;
  // Bytes of one sequence's rings over all layers.
  int64_t slot_bytes() const;
  // Pages of `group` that a sequence of `tokens` tokens holds.
  int64_t pages_for(int group, int64_t tokens) const {
    int64_t entries = tokens / groups[group].ratio;
    return (entries + kPageSize - 1) / kPageSize;
  }
};

CacheLayout make_cache_layout(const Config& config, const Numerics& numerics);

}  // namespace hadal
