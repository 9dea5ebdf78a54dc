// Arguments and checks that the indexer's score kernels share. Part of the portable kernels (kl.h);
// contract in kernels/index_score.h.
#pragma once

#include "kernels/cpu/element.h"
#include "kernels/gpu/batch.cu.h"
#include "kernels/gpu/kl.h"
#include "kernels/index_score.h"

namespace hadal::KL_TARGET {

template <class T>
struct IndexArgs {
  Batch batch;
  View<T> q, keys;
  View<float> weights, scores;
  PageTable table;
  int64_t rows, row0, heads, width, columns;
  int ratio;
  bool round;
};

template <class T>
IndexArgs<T> index_args(const Batch& batch, const IndexScore& a) {
  return {batch,
          view<T>(a.q),
          view<T>(a.keys),
          view<float>(a.weights),
          view<float>(a.scores),
          a.table,
          a.rows,
          a.row0,
          a.q.shape[1],
          a.q.shape[2],
          a.scores.shape[1],
          a.ratio,
          a.round_bf16};
}

inline void check_index_score(const Batch& batch, const IndexScore& a) {
  const char* op = "index_score";
  int64_t heads = a.q.shape[1], d = a.q.shape[2];
  expect_shape(op, "q", a.q, {batch.rows, heads, d});
  expect_shape(op, "weights", a.weights, {batch.rows, heads});
  expect_shape(op, "keys", a.keys, {a.keys.shape[0], a.table.page_size, d});
  expect_dtype(op, "keys", a.keys, a.q.dtype);
  expect_dtype(op, "scores", a.scores, DType::kF32);
  HADAL_CHECK(
      a.row0 >= 0 && a.row0 + a.rows <= batch.rows && a.scores.shape[0] >= a.rows && a.ratio >= 1,
      "[index_score] q " + a.q.describe() + ", scores " + a.scores.describe());
}

}  // namespace hadal::KL_TARGET
