// V4 attention: sliding window + compressed entries + sink, keys = values. Source: spec V4 4.4.
// Scores and softmax in fp32; with bf16 activations the probabilities are rounded to bf16 before
// the value product, the denominator is not. Independent of T.
#pragma once

#include "kernels/batch.h"
#include "kernels/op.h"

namespace hadal {

struct SparseAttention {
  Tensor q;          // [T, H, D]
  Tensor step_kv;    // [T, D] window entries of this step's rows
  Tensor ring;       // [slots, capacity, D] window entries of earlier positions (history_row)
  int window = 128;  // row at p sees positions max(0, p - window + 1) .. p
  Tensor entries;    // [P, page_size, D] compressed entries, or empty (window-only layer)
  PageTable table;
  int ratio = 0;    // entry j is visible at p iff j < (p + 1) / ratio
  Tensor selected;  // [T, K] i32 entries chosen by the indexer, -1 = none; empty = all visible
  Tensor sink;      // [H] f32: a logit with no value, not scaled
  float scale = 1.0f;
  Tensor out;  // [T, H, D]
};

using SparseAttentionFn = void(Context&, const Batch&, const SparseAttention&);
void sparse_attention(Context& ctx, const Batch& batch, const SparseAttention& a);

}  // namespace hadal
