// Matrix products on tensor cores (mma.sync, sm_80 and newer), with the contracts of
// kernels/linear.h for release numerics: x BF16, or FP8 codes with scales; W FP8, FP4 or BF16.
// Products are exact, sums fp32: FP8 x FP8 per 128 columns times (scale_x * scale_w), FP4's scales
// in its values. Launchers as in kernels/gpu/launchers.inc: addresses are of the device, offsets
// and rows are read there, weights of a list lie at equal distances.
//
// Up to 32 rows (experts: per expert on average) a warp reads W straight into fragments, beyond
// that tiles go through shared memory. A row's result depends on that row, and on which of the two
// was taken. hadal::fiber has the same code on an emulated tensor core, for tests.
#pragma once

#include <span>
#include <string>

#include "kernels/linear.h"

namespace hadal {
using GpuStream = void*;

// Why mma_linear does not take this product; empty if it does. `x` and `w` may be of a group or of
// an expert. Scales of FP4 must be below 2^65.
std::string mma_linear_supports(const Activation& x, const Weight& w);
// The same for mma_batched_linear_transposed.
std::string mma_transposed_supports(const Tensor& x, const Weight& w);
}  // namespace hadal

namespace hadal::cuda {
#include "kernels/cuda/mma_launchers.inc"
}
namespace hadal::fiber {
#include "kernels/cuda/mma_launchers.inc"
}
