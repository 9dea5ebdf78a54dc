// What the tensor core products support; compiled for every target.
#include "kernels/cuda/mma_linear.h"

namespace hadal {
namespace {

std::string describe_rows(const char* name, const Tensor& t) {
  bool whole = reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && t.stride[1] == 1 &&
               t.stride[0] * dtype_size(t.dtype) % 16 == 0;
  return whole ? "" : std::string(name) + " has rows that do not begin at multiples of 16 bytes";
}

}  // namespace

std::string mma_linear_supports(const Activation& x, const Weight& w) {
  DType t = x.data.dtype;
  if (t != DType::kBF16 && t != DType::kF8E4M3)
    return std::string("x is ") + dtype_name(t) + ", not BF16 or F8_E4M3";
  if (!w.fp8() && !w.fp4() && w.data.dtype != DType::kBF16)
    return std::string("W is ") + dtype_name(w.data.dtype) + ", not F8_E4M3, FP4 or BF16";
  if (w.k() == 0 || w.k() % kFp8Block)
    return "K is " + std::to_string(w.k()) + ", not a multiple of 128";
  std::string why = describe_rows("x", x.data);
  return why.empty() ? describe_rows("W", w.data) : why;
}

}  // namespace hadal
