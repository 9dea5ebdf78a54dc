// Quantisers of values that a warp holds, for every kernel that ends in one: the same arithmetic as
// kernels/cpu/row_quant.h. Part of the portable kernels (kl.h).
#pragma once

#include "kernels/gpu/kl.h"

namespace hadal::KL_TARGET {

// The larger magnitude; a NaN is passed over and becomes a NaN code.
KL_DEVICE float amax_of(float m, float x) {
  float a = fabsf(x);
  return a > m ? a : m;
}

KL_DEVICE uint8_t fp8_code(float x, float scale) {
  return f32_to_e4m3(kl::clamp_to(x / scale, 448.0f));
}

KL_DEVICE float fp8_round_trip(float x, float scale) {
  return e4m3_to_f32(fp8_code(x, scale)) * scale;
}

KL_DEVICE float fp4_round_trip(float x, float scale) {
  return e2m1_to_f32(f32_to_e2m1(kl::clamp_to(x / scale, 6.0f))) * scale;
}

// v <- H v, H in natural order, for v of n numbers in shared memory that all threads have written
// (after a barrier). Ends with a barrier.
KL_DEVICE void hadamard_shared(float* v, int64_t n, kl::Site at = KL_HERE) {
  for (int64_t half = 1; half < n; half *= 2) {
    for (int64_t i = kl::thread(); i < n / 2; i += kl::threads()) {
      int64_t low = i / half * 2 * half + i % half;
      float p = v[low], q = v[low + half];
      v[low] = p + q;
      v[low + half] = p - q;
    }
    kl::sync(at);
  }
}

}  // namespace hadal::KL_TARGET
