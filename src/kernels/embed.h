// Token ids to vectors. Source: spec V4 3.7, spec V3.2 3.1.
#pragma once

#include "base/tensor.h"
#include "kernels/op.h"

namespace hadal {

// out[t, r, :] = table[ids[t]] for every stream r.
// ids [T] i32 in [0, V) (checked by the engine), table [V, C] bf16|f32|f16, out [T, R, C] f32|bf16.
void embed(Context& ctx, const int32_t* ids, const Tensor& table, const Tensor& out);

}  // namespace hadal
