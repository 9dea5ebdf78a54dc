// Tuned candidates of the matrix products (contracts in kernels/linear.h; who may run which is in
// kernels/dispatch/linear.cpp). Scratch is thread-local and only grows.
#pragma once

#include "kernels/linear.h"

namespace hadal {

// Up to this many rows of x for each row of W, a product is bound by reading W and goes to the
// candidate for few rows. From here on AMX decodes and multiplies faster than vectors do.
inline constexpr int64_t kFewRows = 2;

// AVX2, FMA, F16C. Everything is decoded to fp32.
LinearFn avx2_linear;
GroupedLinearFn avx2_grouped_linear;
BatchedLinearFn avx2_batched_linear;
BatchedLinearFn avx2_batched_linear_transposed;

// AVX-512 with VBMI and BF16: bf16 dot products where both sides are exact in bf16, else fp32 FMA.
LinearFn avx512_linear;
GroupedLinearFn avx512_grouped_linear;
BatchedLinearFn avx512_batched_linear;
BatchedLinearFn avx512_batched_linear_transposed;

// AMX-BF16 tiles for many rows; what tiles cannot do exactly goes to the AVX-512 kernels.
LinearFn amx_linear;
GroupedLinearFn amx_grouped_linear;
BatchedLinearFn amx_batched_linear;
BatchedLinearFn amx_batched_linear_transposed;

}  // namespace hadal
