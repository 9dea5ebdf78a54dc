// Both attentions for AMX, bf16. fp32 goes to the AVX-512 candidates.
#pragma once

#include "kernels/attn_mla.h"
#include "kernels/attn_sparse.h"

namespace hadal {

void amx_sparse_attention(Context& ctx, const Batch& batch, const SparseAttention& a);
void amx_mla_attention(Context& ctx, const Batch& batch, const MlaAttention& a);

}  // namespace hadal
