// Activation quantisation. Source: spec V4 3.1, 3.2, 3.6; spec V3.2 6.1, 4.1. Independent of T.
#pragma once

#include "kernels/linear.h"
#include "kernels/op.h"

namespace hadal {

// Per row and 128 columns: scale = fp8_block_scale(amax, pow2), code = e4m3(clamp(x / scale)).
// x [M, K] f32|bf16 -> out.data [M, K] F8_E4M3, out.scale [M, ceil(K/128)] F32.
void quantize_fp8(Context& ctx, const Tensor& x, bool pow2, const Activation& out);

// add_rms_norm (kernels/norm.h) and quantize_fp8 of its result y.
void add_rms_norm_fp8(Context& ctx, const Tensor& residual, const Tensor& delta, const Tensor& w,
                      float eps, const Tensor& y, bool pow2, const Activation& out);

// x <- e4m3 round trip in blocks of `block` columns, power-of-two scales; the last block of a row
// may be short. x [M, N] f32|bf16, rows may be strided.
void qdq_fp8(Context& ctx, const Tensor& x, int64_t block);

// x <- e2m1 round trip in blocks of 32 columns. x [M, N] f32|bf16, N a multiple of 32.
void qdq_fp4(Context& ctx, const Tensor& x);

// x[m] <- H x[m] / sqrt(N), H in natural (Sylvester) order, butterfly in fp32, one rounding.
// x [M, N] f32|bf16, N a power of two.
void hadamard(Context& ctx, const Tensor& x);

}  // namespace hadal
