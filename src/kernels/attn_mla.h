// MLA attention in the absorbed form over the latent cache: one key head, value = the first L
// dims of the key. Source: spec V3.2 3.4 and 4.1 step 13. fp32 scores and softmax; with bf16
// activations probabilities are rounded to bf16 before the value product. Independent of T.
#pragma once

#include "kernels/batch.h"
#include "kernels/op.h"

namespace hadal {

struct MlaAttention {
  Tensor q;        // [T, H, L + R]: q_nope absorbed into the latent space, then q_pe
  Tensor entries;  // [P, page_size, L + R]: latent c, then k_pe; this step's rows included
  PageTable table;
  Tensor selected;  // [T, K] i32 positions chosen by the indexer, -1 = none; empty = all <= p
  float scale = 1.0f;
  Tensor out;  // [T, H, L]
};

using MlaAttentionFn = void(Context&, const Batch&, const MlaAttention&);
void mla_attention(Context& ctx, const Batch& batch, const MlaAttention& a);

}  // namespace hadal
