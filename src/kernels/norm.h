// Normalisations. Statistics in fp32, one rounding to the output's dtype. Weights bf16|f16|f32 [C],
// used as fp32. Source: spec V4 3.4, spec V3.2 3.1 (R-V32 column) and 4.1. Independent of T.
#pragma once

#include "base/tensor.h"
#include "kernels/op.h"

namespace hadal {

// y[m, :] = x[m, :] * rsqrt(mean(x[m]^2) + eps) * w.   x, y [M, C] f32|bf16, rows may be strided,
// y may be x. An empty w means no weight. Heads of a query are rows of a reshaped view.
void rms_norm(Context& ctx, const Tensor& x, const Tensor& w, float eps, const Tensor& y);

// residual += delta (fp32 sum, stored rounded); y = rms_norm of the unrounded sum.
// residual, delta, y [M, C]. An empty delta adds nothing (first layer).
void add_rms_norm(Context& ctx, const Tensor& residual, const Tensor& delta, const Tensor& w,
                  float eps, const Tensor& y);

// y = (x - mean) * rsqrt(var + eps) * w + b, variance without Bessel's correction.  x, y [M, C].
void layer_norm(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& b, float eps,
                const Tensor& y);

}  // namespace hadal
