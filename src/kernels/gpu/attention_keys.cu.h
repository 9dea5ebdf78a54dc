// The keys of one row of attention, both kinds: MLA's latent cache and V4's window plus compressed
// entries. What the attention kernels share: arguments, where key i lies, and the checks of the
// launchers. Part of the portable kernels (kl.h); contracts in kernels/attn_mla.h, attn_sparse.h.
#pragma once

#include "kernels/attn_mla.h"
#include "kernels/attn_sparse.h"
#include "kernels/cpu/element.h"
#include "kernels/gpu/batch.cu.h"
#include "kernels/gpu/kl.h"

namespace hadal::KL_TARGET {

template <class T>
struct AttentionArgs {
  Batch batch;
  View<T> q, out, step, ring, entries;  // no step: no window
  View<int32_t> selected;
  PageTable table;
  const float* sink;
  int64_t rows, heads, width, values, capacity, window, listed;
  int ratio;
  float scale;
};

// What row t sees: window rows first, oldest to newest, then entries.
struct AttentionRange {
  int sequence, position, first, window, visible, count;  // 32 bits: registers are scarce
};

template <class T>
KL_DEVICE AttentionRange attention_range(const AttentionArgs<T>& a, int64_t t) {
  AttentionRange r = {};
  r.sequence = a.batch.sequence[t];
  r.position = a.batch.positions[t];
  if (a.step) {
    r.first = r.position - static_cast<int>(a.window) + 1;
    if (r.first < 0) r.first = 0;
    r.window = r.position - r.first + 1;
  }
  if (a.entries) r.visible = (r.position + 1) / a.ratio;
  r.count = r.window + (a.selected && r.visible > 0 ? static_cast<int>(a.listed) : r.visible);
  return r;
}

// Key i of row t, or null.
template <class T>
KL_DEVICE const T* attention_key(const AttentionArgs<T>& a, const AttentionRange& r, int64_t t,
                                 int64_t i) {
  if (i >= r.count) return nullptr;
  if (i < r.window)
    return history_address(a.ring, a.capacity, a.step, a.batch, r.sequence, r.first + i);
  int64_t j = i - r.window;
  if (a.selected) j = *a.selected.at(t, j);
  if (j < 0 || j >= r.visible) return nullptr;
  return entry_address(a.entries, a.table, r.sequence, j);
}

inline void check_attention(const char* op, const Tensor& q, const Tensor& out,
                            const Tensor& entries, const PageTable& table, const Tensor& selected) {
  expect_shape(op, "out", out, {q.shape[0], q.shape[1], out.shape[2]});
  expect_dtype(op, "out", out, q.dtype);
  expect_adjacent(op, "q", q);
  expect_adjacent(op, "out", out);
  HADAL_CHECK(out.shape[2] <= q.shape[2],
              std::string("[") + op + "] q " + q.describe() + ", out " + out.describe());
  if (!entries.empty()) {
    expect_shape(op, "entries", entries, {entries.shape[0], table.page_size, q.shape[2]});
    expect_dtype(op, "entries", entries, q.dtype);
  }
  if (!selected.empty()) expect_dtype(op, "selected", selected, DType::kI32);
}

inline void check_mla_attention(const Batch& batch, const MlaAttention& m) {
  const char* op = "mla_attention";
  expect_shape(op, "q", m.q, {batch.rows, m.q.shape[1], m.q.shape[2]});
  check_attention(op, m.q, m.out, m.entries, m.table, m.selected);
}

inline void check_sparse_attention(const Batch& batch, const SparseAttention& p) {
  const char* op = "sparse_attention";
  int64_t rows = batch.rows, h = p.q.shape[1], d = p.q.shape[2];
  expect_shape(op, "q", p.q, {rows, h, d});
  expect_shape(op, "out", p.out, {rows, h, d});
  expect_shape(op, "step_kv", p.step_kv, {rows, d});
  expect_dtype(op, "step_kv", p.step_kv, p.q.dtype);
  expect_shape(op, "sink", p.sink, {h});
  expect_dtype(op, "sink", p.sink, DType::kF32);
  if (!p.ring.empty()) expect_dtype(op, "ring", p.ring, p.q.dtype);
  check_attention(op, p.q, p.out, p.entries, p.table, p.selected);
}

template <class T>
AttentionArgs<T> attention_args(const Batch& batch, const Tensor& q, const Tensor& out) {
  AttentionArgs<T> a = {};
  a.batch = batch;
  a.q = view<T>(q);
  a.out = view<T>(out);
  a.rows = q.shape[0];
  a.heads = q.shape[1];
  a.width = q.shape[2];
  a.values = out.shape[2];
  return a;
}

template <class T>
AttentionArgs<T> attention_args(const Batch& batch, const MlaAttention& m) {
  AttentionArgs<T> a = attention_args<T>(batch, m.q, m.out);
  a.entries = view<T>(m.entries);
  a.selected = view<int32_t>(m.selected);
  a.table = m.table;
  a.listed = m.selected.shape[1];
  a.ratio = 1;
  a.scale = m.scale;
  return a;
}

template <class T>
AttentionArgs<T> attention_args(const Batch& batch, const SparseAttention& p) {
  AttentionArgs<T> a = attention_args<T>(batch, p.q, p.out);
  a.step = view<T>(p.step_kv);
  a.ring = view<T>(p.ring);
  a.capacity = p.ring.shape[1];
  a.window = p.window;
  if (p.ratio > 0) a.entries = view<T>(p.entries);
  a.selected = view<int32_t>(p.selected);
  a.table = p.table;
  a.listed = p.selected.shape[1];
  a.ratio = p.ratio;
  a.sink = p.sink.at<const float>();
  a.scale = p.scale;
  return a;
}

}  // namespace hadal::KL_TARGET
