// The tuned CUDA kernels as a table, so that a build without CUDA links without them.
#pragma once

#include "kernels/cuda/mma_linear.h"

namespace hadal {

// One pointer per launcher of mma_launchers.inc.
struct TunedKernels {
  decltype(fiber::mma_linear)* linear;
  decltype(fiber::mma_linear_pair)* linear_pair;
  decltype(fiber::mma_grouped_linear)* grouped_linear;
  decltype(fiber::mma_batched_linear)* batched_linear;
  decltype(fiber::mma_batched_linear_transposed)* batched_linear_transposed;
};

}  // namespace hadal
