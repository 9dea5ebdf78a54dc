// Both attentions for AVX2 with FMA. See attn_flow.h.
#pragma once

#include "kernels/attn_mla.h"
#include "kernels/attn_sparse.h"

namespace hadal {

void avx2_sparse_attention(Context& ctx, const Batch& batch, const SparseAttention& a);
void avx2_mla_attention(Context& ctx, const Batch& batch, const MlaAttention& a);

}  // namespace hadal
