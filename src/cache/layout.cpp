// Config -> shapes of the caches.
#include "cache/layout.h"

#include <algorithm>

#include "model/compressor.h"

namespace hadal {
namespace {

LayerCacheShape v4_layer(const Config& c, int ratio, int group) {
  LayerCacheShape s;
  s.window_width = c.head_dim;
  s.window_capacity = c.window + kMaxRewind;
  if (ratio == 0) return s;
  s.group = group;
  s.entry_width = c.head_dim;
  // An overlapping entry pools its own group and the one before.
  s.compressor_capacity = (ratio == 4 ? 2 : 1) * ratio + kMaxRewind;
  s.compressor_width = 2 * compressor_width(ratio, c.head_dim);
  if (ratio == 4) {
    s.index_width = c.index_dim;
    s.indexer_compressor_width = 2 * compressor_width(ratio, c.index_dim);
  }
  return s;
}

}  // namespace

CacheLayout make_cache_layout(const Config& c, const Numerics& numerics) {
  CacheLayout layout;
  layout.dtype = numerics.activation;
  if (c.family != Family::kV4) {
    layout.groups = {{1}};
    LayerCacheShape s;
    s.group = 0;
    s.entry_width = c.kv_rank + c.rope_dim;
    s.index_width = c.family == Family::kV32 ? c.index_dim : 0;
    layout.layers.assign(c.layers, s);
    return layout;
  }
  for (int ratio : c.compress_ratios) {
    auto same = [&](const CacheGroup& g) { return g.ratio == ratio; };
    auto it = std::ranges::find_if(layout.groups, same);
    if (ratio > 0 && it == layout.groups.end()) {
      layout.groups.push_back({ratio});
      it = std::prev(layout.groups.end());
    }
    layout.layers.push_back(
        v4_layer(c, ratio, static_cast<int>(std::distance(layout.groups.begin(), it))));
  }
  HADAL_CHECK(layout.groups.size() <= size_t{kMaxCacheGroups}, "too many compression ratios");
  return layout;
}

int64_t CacheLayout::page_bytes(int group) const {
  int64_t n = 0;
  for (const LayerCacheShape& l : layers)
    if (l.group == group) n += (l.entry_width + l.index_width) * kPageSize * dtype_size(dtype);
  return n;
}

int64_t CacheLayout::slot_bytes() const {
  int64_t n = 0;
  for (const LayerCacheShape& l : layers)
    n += l.window_capacity * l.window_width * dtype_size(dtype) +
         l.compressor_capacity * (l.compressor_width + l.indexer_compressor_width) * 4;
  return n;
}

}  // namespace hadal
