// Reference of attn_mla.h: one head at a time, double sums.
#pragma once

#include "kernels/attn_mla.h"

namespace hadal {

void ref_mla_attention(Context& ctx, const Batch& batch, const MlaAttention& a);

}  // namespace hadal
