// The best K of each row of scores. Source: spec V4 4.3 and spec V3.2 4.1 step 12.
#pragma once

#include "kernels/batch.h"
#include "kernels/op.h"

namespace hadal {

// For row i of `scores` (row row0 + i of the step, position p): the indices of the K largest of
// the first (p + 1) / ratio scores, in ascending index order, then -1. Equal scores: the lower
// index wins. scores [rows, S] f32; out [rows, K] i32. Where no more than K are visible, all are.
void topk(Context& ctx, const Batch& batch, int32_t row0, const Tensor& scores, int ratio,
          const Tensor& out);

}  // namespace hadal
