// Reference candidates of the matrix products (contracts in kernels/linear.h): plain loops that run
// everywhere and that every tuned kernel is compared with.
#pragma once

#include "kernels/linear.h"

namespace hadal {

LinearFn ref_linear;
BatchedLinearFn ref_batched_linear;
BatchedLinearFn ref_batched_linear_transposed;
GroupedLinearFn ref_grouped_linear;

}  // namespace hadal
