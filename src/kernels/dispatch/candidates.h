// The answers that candidates for a level of the CPU give to `supports`.
#pragma once

#include <string>

#include "kernels/op.h"

namespace hadal {

inline std::string any_device(const Device&) { return ""; }
inline std::string needs_avx2(const Device& d) {
  return d.avx2 ? "" : "this CPU has no AVX2 and FMA";
}
inline std::string needs_avx512(const Device& d) {
  return d.avx512 ? "" : "this CPU has no AVX-512 with BF16";
}

inline std::string needs_amx(const Device& d) {
  return d.amx ? "" : "no AMX-BF16 tiles for this process";
}

}  // namespace hadal
