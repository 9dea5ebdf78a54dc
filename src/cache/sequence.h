// One sequence's share of the pool: its slot, its pages per group, its length.
#pragma once

#include <vector>

#include "cache/pool.h"

namespace hadal {

class Sequence {
 public:
  // Takes a slot of `pool` (which must outlive the sequence and have one free).
  explicit Sequence(CachePool& pool);
  ~Sequence();
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  int64_t length() const { return length_; }
  int32_t slot() const { return slot_; }
  const std::vector<int32_t>& pages(int group) const { return pages_[group]; }

  // Takes the pages that `tokens` more tokens need; false, with nothing taken, where there are not
  // enough.
  bool reserve(int64_t tokens);
  // The reserved tokens were run.
  void advance(int64_t tokens);
  // Whether rewind(length) is exact: to 0, or by no more than kMaxRewind from the furthest point.
  bool can_rewind(int64_t length) const {
    return length == 0 || (length <= length_ && length >= furthest_ - kMaxRewind);
  }
  void rewind(int64_t length);

 private:
  CachePool& pool_;
  int32_t slot_;
  int64_t length_ = 0;
  int64_t furthest_ = 0;  // the rings hold what was before it
  std::vector<std::vector<int32_t>> pages_;
};

}  // namespace hadal
