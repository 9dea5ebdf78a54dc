// Both attentions for AVX-512: bf16 keys by VDPBF16PS, fp32 keys by FMA. See attn_flow.h.
#pragma once

#include "kernels/attn_mla.h"
#include "kernels/attn_sparse.h"

namespace hadal {

void avx512_sparse_attention(Context& ctx, const Batch& batch, const SparseAttention& a);
void avx512_mla_attention(Context& ctx, const Batch& batch, const MlaAttention& a);

}  // namespace hadal
