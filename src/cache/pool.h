// The memory behind all sequences' caches: pages of entries and slots of rings, handed out and
// taken back. Memory is reserved at load and touched when used.
#pragma once

#include <optional>
#include <vector>

#include "base/buffer.h"
#include "cache/layout.h"

namespace hadal {

class CachePool {
 public:
  // Room for `slots` sequences and pages[g] pages of each group, on `gpu` where there is one.
  CachePool(const CacheLayout& layout, int64_t slots, const std::vector<int64_t>& pages,
            Gpu* gpu = nullptr);

  const CacheLayout& layout() const { return layout_; }
  const LayerCache* layers() const { return layers_.data(); }

  // A free page or slot, or none where all are taken. Contents are whatever was there before.
  std::optional<int32_t> take_page(int group) { return take(free_pages_[group]); }
  std::optional<int32_t> take_slot() { return take(free_slots_); }
  void give_page(int group, int32_t page) { free_pages_[group].push_back(page); }
  void give_slot(int32_t slot) { free_slots_.push_back(slot); }
  int64_t free_pages(int group) const { return static_cast<int64_t>(free_pages_[group].size()); }

  // Fills all cache memory with NaN bit patterns (tests: masked entries must never be read).
  void poison() { arena_.poison(); }

 private:
  static std::optional<int32_t> take(std::vector<int32_t>& free);

  CacheLayout layout_;
  Arena arena_;
  std::vector<LayerCache> layers_;
  std::vector<std::vector<int32_t>> free_pages_;  // by group; the back is taken first
  std::vector<int32_t> free_slots_;
};

}  // namespace hadal
