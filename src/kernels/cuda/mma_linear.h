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

#include "base/gpu.h"
#include "kernels/linear.h"

namespace hadal {
inline std::string describe_mma_rows(const char* name, const Tensor& t) {
  bool whole = reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && t.stride[1] == 1 &&
               t.stride[0] * dtype_size(t.dtype) % 16 == 0;
  return whole ? "" : std::string(name) + " has rows that do not begin at multiples of 16 bytes";
}

// Why mma_linear does not take this product; empty if it does. `x` and `w` may be of a group or of
// an expert. Scales of FP4 must be below 2^65.
inline std::string mma_linear_supports(const Activation& x, const Weight& w) {
  DType t = x.data.dtype;
  if (t != DType::kBF16 && t != DType::kF8E4M3)
    return std::string("x is ") + dtype_name(t) + ", not BF16 or F8_E4M3";
  if (!w.fp8() && !w.fp4() && w.data.dtype != DType::kBF16)
    return std::string("W is ") + dtype_name(w.data.dtype) + ", not F8_E4M3, FP4 or BF16";
  if (w.k() == 0 || w.k() % kFp8Block)
    return "K is " + std::to_string(w.k()) + ", not a multiple of 128";
  std::string why = describe_mma_rows("x", x.data);
  return why.empty() ? describe_mma_rows("W", w.data) : why;
}

// The same for mma_batched_linear_transposed.
inline std::string mma_transposed_supports(const Tensor& x, const Weight& w) {
  if (x.dtype != DType::kBF16) return std::string("x is ") + dtype_name(x.dtype) + ", not BF16";
  if (!w.fp8() && w.data.dtype != DType::kBF16)
    return std::string("W is ") + dtype_name(w.data.dtype) + ", not F8_E4M3 or BF16";
  if (w.n() == 0 || w.n() % 16 || w.row0 % 16)
    return "W has " + std::to_string(w.n()) + " rows from " + std::to_string(w.row0) +
           " on, not multiples of 16";
  if (w.data.shape[1] * dtype_size(w.data.dtype) % 16)
    return "W has " + std::to_string(w.k()) + " columns, not whole pieces of 16 bytes";
  if (reinterpret_cast<uintptr_t>(x.data) % 4 || x.stride[0] % 2 || x.stride[1] % 2)
    return "x has rows that do not begin at multiples of 4 bytes";
  return describe_mma_rows("W", w.data);
}

}  // namespace hadal

namespace hadal::cuda {
#include "kernels/cuda/mma_launchers.inc"
}
namespace hadal::fiber {
#include "kernels/cuda/mma_launchers.inc"
}
