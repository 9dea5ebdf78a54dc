// The answers that candidates for a level of the CPU give to `supports`.
#pragma once

#include <string>

#include "kernels/dispatch/kernels.h"
#include "kernels/gpu/portable.h"

namespace hadal {

inline std::string any_device(const Device&) { return ""; }
inline std::string needs_gpu(const Device& d) { return d.is_gpu() ? "" : "for a GPU"; }
inline std::string needs_cpu(const Device& d) { return d.is_gpu() ? "for the CPU" : ""; }
inline std::string needs_tensor_cores(const Device& d) {
  if (!d.is_gpu()) return needs_gpu(d);
  return d.tuned ? "" : "needs an NVIDIA GPU of compute capability 8.0 or more";
}
inline std::string needs_avx2(const Device& d) {
  if (d.is_gpu()) return needs_cpu(d);
  return d.avx2 ? "" : "this CPU has no AVX2, FMA and F16C";
}
inline std::string needs_avx512(const Device& d) {
  if (d.is_gpu()) return needs_cpu(d);
  return d.avx512 ? "" : "this CPU has no AVX-512 F, BW, DQ, VL, VBMI and BF16";
}
inline std::string needs_amx(const Device& d) {
  if (d.is_gpu()) return needs_cpu(d);
  return d.amx ? "" : "needs AMX-BF16 tiles and a system that lets this process use them";
}

}  // namespace hadal
