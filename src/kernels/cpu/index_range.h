// How the indexer's rows are cut into pieces of work: (row, block of keys), since a decode step has
// one row with many keys and a prompt many rows.
#pragma once

#include "kernels/cpu/element.h"
#include "kernels/index_score.h"

namespace hadal {

inline void check_index(const Batch& b, const IndexScore& s) {
  const char* op = "index_score";
  int64_t h = s.q.shape[1], d = s.q.shape[2];
  expect_shape(op, "q", s.q, {b.rows, h, d});
  expect_shape(op, "weights", s.weights, {b.rows, h});
  expect_dtype(op, "weights", s.weights, DType::kF32);
  expect_shape(op, "keys", s.keys, {s.keys.shape[0], s.table.page_size, d});
  expect_dtype(op, "keys", s.keys, s.q.dtype);
  expect_dtype(op, "scores", s.scores, DType::kF32);
  expect_adjacent(op, "q", s.q);
  expect_adjacent(op, "scores", s.scores);
  HADAL_CHECK(
      s.row0 >= 0 && s.row0 + s.rows <= b.rows && s.ratio >= 1 && s.scores.shape[0] >= s.rows,
      "[index_score] rows " + std::to_string(s.row0) + "+" + std::to_string(s.rows) + " of " +
          std::to_string(b.rows) + ", scores " + s.scores.describe());
}

inline constexpr int64_t kIndexBlock = 256;

// Calls score(i, t, begin, end) for pieces of at most kIndexBlock keys of row i (row t of the step)
// that cover its visible keys, spread over the threads; before the first piece of a row on a
// thread, prepare(t) on the same thread.
template <class Prepare, class Score>
void for_index_blocks(Context& ctx, const Batch& b, const IndexScore& s, Prepare&& prepare,
                      Score&& score) {
  int64_t most = 0;
  for (int64_t i = 0; i < s.rows; ++i)
    most = std::max<int64_t>(most, (b.positions[s.row0 + i] + 1) / s.ratio);
  HADAL_CHECK(most <= s.scores.shape[1], "[index_score] scores " + s.scores.describe() + " for " +
                                             std::to_string(most) + " visible keys");
  int64_t blocks = (most + kIndexBlock - 1) / kIndexBlock;
  int64_t work = std::min(most, kIndexBlock) * s.q.shape[1] * s.q.shape[2] / 16;
  ctx.threads.run(s.rows * blocks, grain_of(work), [&](int64_t begin, int64_t end, int) {
    int64_t prepared = -1;
    for (int64_t u = begin; u < end; ++u) {
      int64_t i = u / blocks, t = s.row0 + i, first = u % blocks * kIndexBlock;
      int64_t last = std::min<int64_t>((b.positions[t] + 1) / s.ratio, first + kIndexBlock);
      if (first >= last) continue;
      if (prepared != t) prepare(prepared = t);
      score(i, t, first, last);
    }
  });
}

}  // namespace hadal
