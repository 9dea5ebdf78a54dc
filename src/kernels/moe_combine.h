// Around the expert products: the gated activation and the sum over a token's experts.
// Source: spec V4 section 5, spec V3.2 sections 3.2 and 5.1. Independent of T.
#pragma once

#include "base/tensor.h"
#include "kernels/op.h"

namespace hadal {

// y[i, :] = w_i * silu(g) * u with g = min(gate, limit), u = clamp(up, -limit, limit) where
// limit > 0; in fp32, one rounding. gate, up, y [M, I] (y may be gate). w_i = weights[pair[i]]
// where weights is given, else 1. `used` (may be null: all M) is the number of rows that hold
// anything, offsets + E of moe_sort(); the rows after them are neither read nor written.
void swiglu(Context& ctx, const Tensor& gate, const Tensor& up, float limit, const float* weights,
            const int32_t* pair, const int32_t* used, const Tensor& y);

// out[t, :] = sum over the row's experts in ascending id of (weights ? weights[pair] : 1) *
// y[sorted position], then + shared[t, :]; fp32 sum, one rounding.
// y [M, C] sorted as moe_sort() says, pair [M], used as above; shared [T, C] or empty;
// out [T, C]. `position` [T*K] i32 is scratch of the caller.
void moe_combine(Context& ctx, const Tensor& y, const int32_t* pair, const int32_t* used, int64_t k,
                 const float* weights, const Tensor& shared, int32_t* position, const Tensor& out);

}  // namespace hadal
