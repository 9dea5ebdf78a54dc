// Pools, rings and their free lists.
#include "cache/pool.h"

namespace hadal {
namespace {

std::vector<int32_t> descending(int64_t n) {
  std::vector<int32_t> v(n);
  for (int64_t i = 0; i < n; ++i) v[i] = static_cast<int32_t>(n - 1 - i);
  return v;
}

}  // namespace

CachePool::CachePool(const CacheLayout& layout, int64_t slots, const std::vector<int64_t>& pages,
                     Gpu* gpu)
    : layout_(layout), arena_(gpu), free_slots_(descending(slots)) {
  HADAL_CHECK(pages.size() == layout.groups.size(), "one page count per cache group");
  for (int64_t n : pages) free_pages_.push_back(descending(n));
  DType t = layout.dtype;
  for (const LayerCacheShape& s : layout.layers) {
    LayerCache c;
    c.group = s.group;
    if (s.group >= 0) c.entries = arena_.make(t, {pages[s.group], kPageSize, s.entry_width});
    if (s.index_width) c.index_keys = arena_.make(t, {pages[s.group], kPageSize, s.index_width});
    if (s.window_width) c.window = arena_.make(t, {slots, s.window_capacity, s.window_width});
    if (s.compressor_width)
      c.compressor = arena_.make(DType::kF32, {slots, s.compressor_capacity, s.compressor_width});
    if (s.indexer_compressor_width)
      c.indexer_compressor =
          arena_.make(DType::kF32, {slots, s.compressor_capacity, s.indexer_compressor_width});
    layers_.push_back(c);
  }
}

std::optional<int32_t> CachePool::take(std::vector<int32_t>& free) {
  if (free.empty()) return std::nullopt;
  int32_t id = free.back();
  free.pop_back();
  return id;
}

}  // namespace hadal
