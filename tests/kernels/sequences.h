// Several sequences in one step, with their caches laid out as the engine may: permuted slots and
// pages with holes, NaN wherever no op may read.
#pragma once

#include <algorithm>
#include <numeric>

#include "kernels/op_rig.h"

namespace hadal::test {

// The rows of a step, from each sequence's cached length and number of new tokens.
struct StepRows {
  StepRows(std::vector<int32_t> cached, std::vector<int32_t> fresh) : start(std::move(cached)) {
    int32_t n = static_cast<int32_t>(start.size());
    first.push_back(0);
    for (int32_t s = 0; s < n; ++s) {
      for (int32_t i = 0; i < fresh[s]; ++i) {
        positions.push_back(start[s] + i);
        sequence.push_back(s);
      }
      first.push_back(static_cast<int32_t>(positions.size()));
      slot.push_back((s * 7 + 3) % (n + 2));
    }
    // 7 and n + 2 may share a factor: any distinct slots do.
    std::vector<int32_t> sorted = slot;
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
      for (int32_t s = 0; s < n; ++s) slot[s] = n + 1 - s;
    batch.rows = first.back();
    batch.sequences = n;
    batch.positions = positions.data();
    batch.sequence = sequence.data();
    batch.first_row = first.data();
    batch.start = start.data();
    batch.slot = slot.data();
  }
  StepRows(const StepRows&) = delete;

  int64_t rows() const { return batch.rows; }
  int64_t sequences() const { return batch.sequences; }
  int64_t slots() const { return batch.sequences + 2; }
  int64_t length(int64_t s) const { return start[s] + first[s + 1] - first[s]; }  // after the step

  std::vector<int32_t> positions, sequence, first, start, slot;
  Batch batch;
};

// Pages in random order for `entries` entries of each sequence; every third page stays unused.
struct Pages {
  Pages(int64_t sequences, int64_t entries, int32_t page_size) {
    table.page_size = page_size;
    table.stride = std::max<int64_t>(1, (entries + page_size - 1) / page_size);
    count = sequences * table.stride * 3 / 2 + 1;
    std::vector<int32_t> all(count);
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), generator());
    ids.assign(all.begin(), all.begin() + sequences * table.stride);
    table.pages = ids.data();
  }
  Pages(const Pages&) = delete;
  // Flat row of entry j of sequence s in a pool seen as [count * page_size, D].
  int64_t row(int64_t s, int64_t j) const {
    return int64_t{ids[s * table.stride + j / table.page_size]} * table.page_size +
           j % table.page_size;
  }
  std::vector<int32_t> ids;
  PageTable table;
  int64_t count = 0;
};

inline void copy_row(const Array& from, int64_t row, const Array& to, int64_t to_row) {
  int64_t bytes = from.view.shape[from.view.rank - 1] * dtype_size(from.view.dtype);
  std::memcpy(static_cast<char*>(to.view.data) + to_row * bytes,
              static_cast<const char*>(from.view.data) + row * bytes, bytes);
}

// Rows that sequences have: history[s] is [length, D].
using History = std::vector<Array>;

inline History random_history(const StepRows& rows, DType t, int64_t d, double sigma) {
  History h;
  for (int64_t s = 0; s < rows.sequences(); ++s) {
    h.emplace_back(t, std::initializer_list<int64_t>{rows.length(s), d});
    h.back().fill_normal(sigma);
  }
  return h;
}

// The rows of this step, [T, D].
inline Array step_part(const StepRows& rows, const History& h) {
  Array step(h[0].view.dtype, {rows.rows(), h[0].view.shape[1]});
  for (int64_t t = 0; t < rows.rows(); ++t)
    copy_row(h[rows.sequence[t]], rows.positions[t], step, t);
  return step;
}

// A ring that holds the last `kept` positions before the step and NaN elsewhere.
inline Array ring_part(const StepRows& rows, const History& h, int64_t capacity, int64_t kept) {
  Array ring(h[0].view.dtype, {rows.slots(), capacity, h[0].view.shape[1]});
  for (int64_t s = 0; s < rows.sequences(); ++s)
    for (int64_t p = std::max<int64_t>(0, rows.start[s] - kept); p < rows.start[s]; ++p)
      copy_row(h[s], p, ring, rows.slot[s] * capacity + p % capacity);
  return ring;
}

// A pool with the first `count(s)` rows of each history.
template <class F>
Array pool_part(const Pages& pages, const History& h, F&& count) {
  Array pool(h[0].view.dtype, {pages.count, pages.table.page_size, h[0].view.shape[1]});
  for (size_t s = 0; s < h.size(); ++s)
    for (int64_t j = 0; j < count(s); ++j) copy_row(h[s], j, pool, pages.row(s, j));
  return pool;
}

}  // namespace hadal::test
