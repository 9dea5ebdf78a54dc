// Matrix products with a checkpoint weight. All accumulate in fp32 and round once, to y's dtype.
// Source: spec V4 section 3.3, spec V3.2 section 6.2. A row's result does not depend on M within
// one candidate and row class (few rows / many rows, see dispatch/linear.cpp).
#pragma once

#include "kernels/op.h"
#include "kernels/weight.h"

namespace hadal {

// The left operand: F32 or BF16 [M, K] as it is, or F8_E4M3 [M, K] with scale [M, ceil(K/128)] F32
// as quantize_fp8() makes it. Rows may be strided; columns are adjacent.
struct Activation {
  Tensor data;
  Tensor scale;
};

// y[m, n] = sum_k x[m, k] w[n, k].   x [M, K], w [N, K], y [M, N] f32|bf16 (rows may be strided).
// FP8 x FP8: per 128-column block, (sum q w) * (scale_x * scale_w), blocks summed in fp32.
using LinearFn = void(Context&, const Activation& x, const Weight& w, const Tensor& y);
void linear(Context& ctx, const Activation& x, const Weight& w, const Tensor& y);

// Two products of one x with weights of one shape and format (gate and up): as linear() of each.
void linear_pair(Context& ctx, const Activation& x, const Weight& w0, const Weight& w1,
                 const Tensor& y0, const Tensor& y1);

// One product per group g (head, or output group) with x and y cut by the group:
// y[m, g, n] = sum_k x[m, g, k] w_g[n, k].   x [M, G, K] f32|bf16, w[g] [N, K], y [M, G, N]; the
// first two strides of x and y are free. Weights are used unquantised-activation style (wo_a,
// W_UV).
using BatchedLinearFn = void(Context&, const Tensor& x, std::span<const Weight> w, const Tensor& y);
void batched_linear(Context& ctx, const Tensor& x, std::span<const Weight> w, const Tensor& y);

// The same with the weight's other index summed: y[m, g, k] = sum_n x[m, g, n] w_g[n, k].
// x [M, G, N], w[g] [N, K], y [M, G, K]. (Absorbed MLA: q_nope times W_UK, spec V3.2 section 3.4.)
void batched_linear_transposed(Context& ctx, const Tensor& x, std::span<const Weight> w,
                               const Tensor& y);

// Routed experts: rows are sorted by expert, rows [offsets[e], offsets[e+1]) of y belong to expert
// e. y[i, n] = sum_k x[row_i, k] experts[e][n, k], row_i = rows ? rows[i] : i.
// x [Mx, K] (any Activation), offsets [E + 1], rows [M] or null, y [M, N]. Experts without rows are
// not read.
using GroupedLinearFn = void(Context&, const Activation& x, const int32_t* rows,
                             const int32_t* offsets, std::span<const Weight> experts,
                             const Tensor& y);
void grouped_linear(Context& ctx, const Activation& x, const int32_t* rows, const int32_t* offsets,
                    std::span<const Weight> experts, const Tensor& y);

}  // namespace hadal
