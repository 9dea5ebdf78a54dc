// The quantisers on one row in memory: quant.h's ops and the compressor apply the same ones.
#pragma once

#include "kernels/cpu/element.h"
#include "kernels/weight.h"

namespace hadal {

template <class T>
inline float abs_max(const T* x, int64_t n) {
  float m = 0;
  for (int64_t i = 0; i < n; ++i) m = std::max(m, std::fabs(load(x[i])));
  return m;
}

inline float clamp_to(float x, float limit) { return std::min(std::max(x, -limit), limit); }

// Codes of one block; returns its scale.
template <class T>
inline float quantize_fp8_block(const T* x, int64_t n, bool pow2, uint8_t* codes) {
  float s = fp8_block_scale(abs_max(x, n), pow2);
  for (int64_t i = 0; i < n; ++i) codes[i] = f32_to_e4m3(clamp_to(load(x[i]) / s, 448.0f));
  return s;
}

template <class T>
inline void qdq_fp8_row(T* x, int64_t n, int64_t block) {
  for (int64_t c = 0; c < n; c += block) {
    int64_t end = std::min(n, c + block);
    float s = fp8_block_scale(abs_max(x + c, end - c), true);
    for (int64_t i = c; i < end; ++i)
      store(x[i], e4m3_to_f32(f32_to_e4m3(clamp_to(load(x[i]) / s, 448.0f))) * s);
  }
}

template <class T>
inline void qdq_fp4_row(T* x, int64_t n) {
  for (int64_t c = 0; c < n; c += kFp4Block) {
    float s = fp4_block_scale(abs_max(x + c, kFp4Block));
    for (int64_t i = c; i < c + kFp4Block; ++i)
      store(x[i], kE2M1[f32_to_e2m1(clamp_to(load(x[i]) / s, 6.0f))] * s);
  }
}

// v <- H v / sqrt(n), H in natural order.
inline void hadamard_row(float* v, int64_t n) {
  for (int64_t half = 1; half < n; half *= 2)
    for (int64_t base = 0; base < n; base += 2 * half)
      for (int64_t i = base; i < base + half; ++i) {
        float a = v[i], b = v[i + half];
        v[i] = a + b;
        v[i + half] = a - b;
      }
  float norm = static_cast<float>(1.0 / std::sqrt(static_cast<double>(n)));
  for (int64_t i = 0; i < n; ++i) v[i] *= norm;
}

}  // namespace hadal
