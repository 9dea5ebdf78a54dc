// Flat arrays, filled in input order.
#include "engine/step_builder.h"

#include <algorithm>

namespace hadal {

StepBuilder::StepBuilder(const CacheLayout& layout, int64_t max_rows, int64_t max_sequences,
                         int64_t max_context) {
  for (auto* v : {&ids_, &positions_, &sequence_, &logit_rows_}) v->reserve(max_rows);
  first_row_.reserve(max_sequences + 1);
  start_.reserve(max_sequences);
  slot_.reserve(max_sequences);
  for (int g = 0; g < static_cast<int>(layout.groups.size()); ++g) {
    stride_.push_back(std::max<int64_t>(layout.pages_for(g, max_context), 1));
    pages_.emplace_back().reserve(max_sequences * stride_.back());
  }
  clear();
}

void StepBuilder::clear() {
  for (auto* v : {&ids_, &positions_, &sequence_, &logit_rows_, &start_, &slot_}) v->clear();
  for (auto& p : pages_) p.clear();
  first_row_.assign(1, 0);
  longest_ = 0;
}

void StepBuilder::add(const Sequence& sequence, std::span<const int32_t> ids, int64_t logits) {
  auto s = static_cast<int32_t>(start_.size());
  auto start = static_cast<int32_t>(sequence.length());
  auto rows = static_cast<int32_t>(ids.size());
  for (int32_t i = 0; i < rows; ++i) {
    if (i >= rows - logits) logit_rows_.push_back(first_row_.back() + i);
    ids_.push_back(ids[i]);
    positions_.push_back(start + i);
    sequence_.push_back(s);
  }
  longest_ = std::max(longest_, start + rows);
  start_.push_back(start);
  slot_.push_back(sequence.slot());
  first_row_.push_back(first_row_.back() + rows);
  for (size_t g = 0; g < pages_.size(); ++g) {
    const auto& pages = sequence.pages(static_cast<int>(g));
    pages_[g].insert(pages_[g].end(), pages.begin(), pages.end());
    pages_[g].resize((s + 1) * stride_[g], -1);
  }
}

Step StepBuilder::step(const LayerCache* caches) const {
  Step step;
  step.batch = {static_cast<int32_t>(ids_.size()),
                static_cast<int32_t>(start_.size()),
                longest_,
                positions_.data(),
                sequence_.data(),
                first_row_.data(),
                start_.data(),
                slot_.data()};
  step.ids = ids_.data();
  for (size_t g = 0; g < pages_.size(); ++g)
    step.pages[g] = {pages_[g].data(), stride_[g], kPageSize};
  step.caches = caches;
  step.logit_rows = logit_rows_.data();
  step.logit_count = static_cast<int32_t>(logit_rows_.size());
  return step;
}

}  // namespace hadal
