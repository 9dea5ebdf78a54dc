// Which experts, with which weights. Everything in fp32; the correction bias is never rounded and
// only selects. Ties: the lower index wins. Source: spec V4 section 5, spec V3.2 section 5.
// Independent of T.
#pragma once

#include "base/tensor.h"
#include "kernels/op.h"

namespace hadal {

enum class RouterScore { kSigmoid, kSqrtSoftplus };

struct Router {
  RouterScore score = RouterScore::kSigmoid;
  int groups = 1, kept_groups = 1;  // V3: experts of all but the best groups become -inf
  int k = 0;                        // experts per token
  float scale = 1.0f;               // routed_scaling_factor
  bool normalize = true;            // divide by the sum of the chosen scores (+1e-20)
  Tensor bias;                      // [E] f32 or empty
  Tensor table;                     // [V, K] i64: hash layers choose by token id; else empty
};

// logits [T, E] f32; ids [T] token ids (read only with a table) -> chosen [T, K] i32,
// weights [T, K] f32 = score / sum * scale. Group score = sum of the two best biased scores.
// A NaN logit leaves its row with chosen = -1 and weights = NaN (the engine refuses the request).
void route(Context& ctx, const Tensor& logits, const int32_t* ids, const Router& router,
           const Tensor& chosen, const Tensor& weights);

// Sorts the T*K (row, choice) pairs by expert, stable. chosen [T, K] i32 ->
// offsets [E + 1]; pair [T*K]: pair[i] = t*K + k of sorted position i; row [T*K]: row[i] = t.
// Only experts [first, first + E) count, as 0 to E - 1: pairs with -1 or another rank's expert are
// left out (offsets[E] counts the rest).
void moe_sort(Context& ctx, const Tensor& chosen, int64_t first, int64_t experts, int32_t* offsets,
              int32_t* pair, int32_t* row);

}  // namespace hadal
