// Reference of attn_sparse.h: one head at a time, double sums.
#pragma once

#include "kernels/attn_sparse.h"

namespace hadal {

void ref_sparse_attention(Context& ctx, const Batch& batch, const SparseAttention& a);

}  // namespace hadal
