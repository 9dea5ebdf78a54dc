// Turns "these sequences get these tokens" into the plain arrays of a Step. Buffers are made once.
#pragma once

#include <span>
#include <vector>

#include "cache/sequence.h"
#include "model/step.h"

namespace hadal {

class StepBuilder {
 public:
  // Room for max_rows rows of max_sequences sequences with up to max_context tokens each.
  StepBuilder(const CacheLayout& layout, int64_t max_rows, int64_t max_sequences,
              int64_t max_context);

  void clear();
  // Appends the new tokens of a sequence whose pages are reserved. `logits`: how many of its last
  // rows' logits are wanted (0, 1 or all).
  void add(const Sequence& sequence, std::span<const int32_t> ids, int64_t logits);
  // The step of all that was added; valid until clear(). `caches` [layers] are the pool's.
  Step step(const LayerCache* caches) const;

 private:
  int32_t longest_ = 0;
  std::vector<int32_t> ids_, positions_, sequence_, first_row_, start_, slot_, logit_rows_;
  std::vector<std::vector<int32_t>> pages_;  // by group [S, stride]
  std::vector<int64_t> stride_;
};

}  // namespace hadal
