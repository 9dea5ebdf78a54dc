// Which keys a row attends to, as a list of addresses: the part of attention that is bookkeeping
// and the same for every candidate. Lists live in per-thread scratch and hold no key that the row
// may not see.
#pragma once

#include <string>

#include "kernels/attn_mla.h"
#include "kernels/attn_sparse.h"
#include "kernels/cpu/element.h"

namespace hadal {

template <class T>
struct KeyList {
  const T* const* keys = nullptr;
  int64_t size = 0;
};

// Entries `selected` (or all `visible`) of sequence s, appended at `out`; returns how many.
template <class T>
int64_t list_entries(const Tensor& pool, const PageTable& table, const Tensor& selected, int64_t t,
                     int64_t s, int64_t visible, const T** out) {
  int64_t n = 0;
  if (selected.empty()) {
    for (int64_t j = 0; j < visible; ++j) out[n++] = entry<const T>(pool, table, s, j);
    return n;
  }
  const int32_t* chosen = selected.at<const int32_t>(t);
  for (int64_t i = 0; i < selected.shape[1]; ++i) {
    int64_t j = chosen[i];
    if (j < 0) continue;
    HADAL_CHECK(j < visible, "[attention] row " + std::to_string(t) + " selects entry " +
                                 std::to_string(j) + " of " + std::to_string(visible));
    out[n++] = entry<const T>(pool, table, s, j);
  }
  return n;
}

struct KeyListScratch {};

// Window first, oldest to newest, then compressed entries.
template <class T>
KeyList<T> sparse_keys(const Batch& b, const SparseAttention& a, int64_t t) {
  int64_t s = b.sequence[t], p = b.positions[t];
  int64_t first = std::max<int64_t>(0, p - a.window + 1);
  int64_t visible = a.entries.empty() || a.ratio <= 0 ? 0 : (p + 1) / a.ratio;
  int64_t listed = a.selected.empty() ? visible : a.selected.shape[1];
  const T** keys = scratch<const T*, KeyListScratch>(p - first + 1 + listed);
  int64_t n = 0;
  for (int64_t i = first; i <= p; ++i) keys[n++] = history_row<T>(a.ring, a.step_kv, b, s, i);
  if (visible > 0) n += list_entries<T>(a.entries, a.table, a.selected, t, s, visible, keys + n);
  return {keys, n};
}

template <class T>
KeyList<T> mla_keys(const Batch& b, const MlaAttention& a, int64_t t) {
  int64_t visible = b.positions[t] + 1;
  int64_t listed = a.selected.empty() ? visible : a.selected.shape[1];
  const T** keys = scratch<const T*, KeyListScratch>(listed);
  return {keys, list_entries<T>(a.entries, a.table, a.selected, t, b.sequence[t], visible, keys)};
}

inline void check_sparse(const Batch& b, const SparseAttention& a) {
  const char* op = "sparse_attention";
  int64_t rows = b.rows, h = a.q.shape[1], d = a.q.shape[2];
  expect_shape(op, "q", a.q, {rows, h, d});
  expect_shape(op, "out", a.out, {rows, h, d});
  expect_shape(op, "step_kv", a.step_kv, {rows, d});
  expect_shape(op, "sink", a.sink, {h});
  expect_dtype(op, "sink", a.sink, DType::kF32);
  for (const Tensor* t : {&a.out, &a.step_kv}) expect_dtype(op, "out, step_kv", *t, a.q.dtype);
  if (!a.ring.empty()) {
    expect_shape(op, "ring", a.ring, {a.ring.shape[0], a.ring.shape[1], d});
    expect_dtype(op, "ring", a.ring, a.q.dtype);
  }
  if (!a.entries.empty()) {
    expect_shape(op, "entries", a.entries, {a.entries.shape[0], a.table.page_size, d});
    expect_dtype(op, "entries", a.entries, a.q.dtype);
  }
  if (!a.selected.empty()) expect_dtype(op, "selected", a.selected, DType::kI32);
  for (const Tensor* t : {&a.q, &a.out, &a.step_kv}) expect_adjacent(op, "q, out, step_kv", *t);
}

inline void check_mla(const Batch& b, const MlaAttention& a) {
  const char* op = "mla_attention";
  int64_t rows = b.rows, h = a.q.shape[1], d = a.q.shape[2];
  expect_shape(op, "q", a.q, {rows, h, d});
  expect_shape(op, "out", a.out, {rows, h, a.out.shape[2]});
  HADAL_CHECK(a.out.shape[2] <= d,
              "[mla_attention] q is " + a.q.describe() + ", out " + a.out.describe());
  expect_shape(op, "entries", a.entries, {a.entries.shape[0], a.table.page_size, d});
  expect_dtype(op, "entries", a.entries, a.q.dtype);
  expect_dtype(op, "out", a.out, a.q.dtype);
  if (!a.selected.empty()) expect_dtype(op, "selected", a.selected, DType::kI32);
  for (const Tensor* t : {&a.q, &a.out}) expect_adjacent(op, "q, out", *t);
}

}  // namespace hadal
