// One copy for the small arrays, one per page table that has changed.
#include "engine/device_step.h"

#include <algorithm>

namespace hadal {

DeviceStep::DeviceStep(Gpu& gpu, const CacheLayout& layout, int64_t max_rows, int64_t max_sequences,
                       int64_t max_context)
    : gpu_(gpu), capacity_(std::max(max_rows, max_sequences + 1)), arena_(&gpu) {
  arrays_ = arena_.make(DType::kI32, {kArrays, capacity_});
  block_.resize(kArrays * capacity_);
  for (int g = 0; g < static_cast<int>(layout.groups.size()); ++g) {
    int64_t stride = std::max<int64_t>(layout.pages_for(g, max_context), 1);
    pages_.push_back(arena_.make(DType::kI32, {max_sequences, stride}));
    shadow_.emplace_back();
  }
}

Step DeviceStep::upload(const Step& host) {
  Step step = host;
  const Batch& b = host.batch;
  auto put = [&](Array a, const int32_t* from, int64_t n) {
    HADAL_CHECK(n <= capacity_, "a step larger than planned");
    std::copy_n(from, n, block_.begin() + a * capacity_);
    return arrays_.at<const int32_t>(a);
  };
  step.ids = put(kIds, host.ids, b.rows);
  step.batch.positions = put(kPositions, b.positions, b.rows);
  step.batch.sequence = put(kSequence, b.sequence, b.rows);
  step.batch.first_row = put(kFirstRow, b.first_row, b.sequences + 1);
  step.batch.start = put(kStart, b.start, b.sequences);
  step.batch.slot = put(kSlot, b.slot, b.sequences);
  step.logit_rows = put(kLogitRows, host.logit_rows, host.logit_count);
  gpu_.upload(arrays_.data, block_.data(), arrays_.bytes());

  for (size_t g = 0; g < pages_.size(); ++g) {
    const PageTable& table = host.pages[g];
    auto count = static_cast<size_t>(b.sequences * table.stride);
    auto& shadow = shadow_[g];
    if (shadow.size() < count || !std::equal(table.pages, table.pages + count, shadow.begin())) {
      shadow.assign(table.pages, table.pages + count);
      gpu_.upload(pages_[g].data, shadow.data(), static_cast<int64_t>(count) * 4);
    }
    step.pages[g].pages = pages_[g].at<const int32_t>();
  }
  return step;
}

}  // namespace hadal
