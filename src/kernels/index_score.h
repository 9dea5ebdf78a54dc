// Lightning-indexer scores. Source: spec V4 4.3, spec V3.2 4.1 steps 10 and 11.
#pragma once

#include "kernels/batch.h"
#include "kernels/op.h"

namespace hadal {

struct IndexScore {
  Tensor q;        // [T, H, D] f32|bf16 index queries
  Tensor weights;  // [T, H] f32, may be negative
  Tensor keys;     // [P, page_size, D] same dtype as q
  PageTable table;
  int ratio = 1;  // key j is visible at p iff j < (p + 1) / ratio
  // V4 release: dot, relu * weight and the sum are each rounded to bf16.
  bool round_bf16 = false;
  int32_t row0 = 0, rows = 0;  // rows [row0, row0 + rows) of the step
  Tensor scores;               // [rows, >= visible] f32; scores[i, j] = sum_h relu(q_h . k_j) * w_h
};

// out = raw * scale in fp32; with round_bf16 the product is rounded to bf16 (V4 release).
// raw [T, H] f32|bf16 (weights_proj's output), out [T, H] f32.
void index_weights(Context& ctx, const Tensor& raw, float scale, bool round_bf16,
                   const Tensor& out);

using IndexScoreFn = void(Context&, const Batch&, const IndexScore&);
// Writes the visible scores of each row; the rest of the row stays untouched.
void index_score(Context& ctx, const Batch& batch, const IndexScore& s);

}  // namespace hadal
