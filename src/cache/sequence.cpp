// Growing, shrinking and giving back.
#include "cache/sequence.h"

#include <algorithm>

namespace hadal {

Sequence::Sequence(CachePool& pool) : pool_(pool), pages_(pool.layout().groups.size()) {
  auto slot = pool.take_slot();
  HADAL_CHECK(slot, "a sequence needs a free slot");
  slot_ = *slot;
}

Sequence::~Sequence() {
  rewind(0);
  pool_.give_slot(slot_);
}

bool Sequence::reserve(int64_t tokens) {
  int groups = static_cast<int>(pages_.size());
  auto missing = [&](int g) {
    int64_t need = pool_.layout().pages_for(g, length_ + tokens);
    return std::max<int64_t>(need - static_cast<int64_t>(pages_[g].size()), 0);
  };
  for (int g = 0; g < groups; ++g)
    if (missing(g) > pool_.free_pages(g)) return false;
  for (int g = 0; g < groups; ++g)
    for (int64_t n = missing(g); n > 0; --n) pages_[g].push_back(*pool_.take_page(g));
  return true;
}

void Sequence::advance(int64_t tokens) {
  length_ += tokens;
  furthest_ = std::max(furthest_, length_);
}

void Sequence::rewind(int64_t length) {
  HADAL_CHECK(can_rewind(length), "rewind beyond what the rings hold");
  length_ = length;
  if (length == 0) furthest_ = 0;
  for (int g = 0; g < static_cast<int>(pages_.size()); ++g) {
    auto keep = static_cast<size_t>(pool_.layout().pages_for(g, length));
    while (pages_[g].size() > keep) {
      pool_.give_page(g, pages_[g].back());
      pages_[g].pop_back();
    }
  }
}

}  // namespace hadal
