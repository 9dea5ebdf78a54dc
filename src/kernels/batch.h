// The rows of one step, as ops see them: any mixture of sequences, each with one or many new
// tokens. Plain arrays owned by the caller (model/step.h), valid for the step.
#pragma once

#include <cstdint>

#include "base/tensor.h"

namespace hadal {

// T rows (tokens of this step), S sequences; the rows of a sequence are adjacent and in order.
struct Batch {
  int32_t rows = 0;
  int32_t sequences = 0;
  int32_t longest = 0;  // positions of the longest sequence, this step's rows included
  const int32_t* positions = nullptr;  // [T] absolute position of each row in its sequence
  const int32_t* sequence = nullptr;   // [T] 0..S-1
  const int32_t* first_row = nullptr;  // [S + 1]
  const int32_t* start = nullptr;      // [S] position of the first row = tokens cached before
  const int32_t* slot = nullptr;       // [S] index into per-sequence state (rings)
};

// Where the entries of each sequence lie in a pool [P, page_size, D]: entry j of sequence s is in
// page pages[s * stride + j / page_size], row j % page_size.
struct PageTable {
  const int32_t* pages = nullptr;  // [S, stride]
  int64_t stride = 0;
  int32_t page_size = 64;
};

// Address of entry j of sequence s in `pool` [P, page_size, D].
template <class T>
inline T* entry(const Tensor& pool, const PageTable& table, int64_t s, int64_t j) {
  int64_t page = table.pages[s * table.stride + j / table.page_size];
  return pool.at<T>(page, j % table.page_size);
}

// Rows that a sequence keeps from one step to the next: position p lies in slot p mod capacity of
// `ring` [slots, capacity, D]; rows of the running step lie in `step` [T, D]. The ring is written
// after the step's readers are done, so a row with position < start is read from the ring and any
// other from the step. capacity >= rows that must be kept + the longest draft that may be undone.
template <class T>
inline const T* history_row(const Tensor& ring, const Tensor& step, const Batch& b, int64_t s,
                            int64_t p) {
  if (p >= b.start[s]) return step.at<const T>(b.first_row[s] + p - b.start[s]);
  return ring.at<const T>(b.slot[s], p % ring.shape[1]);
}

}  // namespace hadal
