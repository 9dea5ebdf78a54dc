// Scores as integers in the same order, for the top-k kernels. Part of the portable kernels (kl.h).
#pragma once

#include "kernels/gpu/kl.h"

namespace hadal::KL_TARGET {

// Orders as the floats do; -0 equals +0, NaN is below everything.
KL_DEVICE uint32_t topk_key(float v) {
  if (v != v) return 0;
  uint32_t u = std::bit_cast<uint32_t>(v + 0.0f);
  return u & 0x80000000u ? ~u : u | 0x80000000u;
}

}  // namespace hadal::KL_TARGET
