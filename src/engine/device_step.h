// A step's arrays on a GPU: fixed addresses, so that captured graphs read what the next step
// brings.
#pragma once

#include <vector>

#include "base/buffer.h"
#include "cache/layout.h"
#include "model/step.h"

namespace hadal {

class DeviceStep {
 public:
  // Room for steps of max_rows rows of max_sequences sequences of up to max_context tokens.
  DeviceStep(Gpu& gpu, const CacheLayout& layout, int64_t max_rows, int64_t max_sequences,
             int64_t max_context);

  // Queues the copy of what `host` points to; the same step with device pointers.
  Step upload(const Step& host);

 private:
  // All arrays but the page tables lie one after another in one block of this many entries each.
  enum Array { kIds, kPositions, kSequence, kFirstRow, kStart, kSlot, kLogitRows, kArrays };

  Gpu& gpu_;
  int64_t capacity_;  // entries of each array
  Arena arena_;
  Tensor arrays_;                             // [kArrays, capacity] i32
  std::vector<Tensor> pages_;                 // by group [S, stride] i32
  std::vector<int32_t> block_;                // host copy of arrays_
  std::vector<std::vector<int32_t>> shadow_;  // what the page tables hold
};

}  // namespace hadal
