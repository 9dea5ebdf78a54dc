// The loops over one row that the small ops consist of (norms, quantisers, activations, streams),
// once for each instruction set: ops check shapes and spread rows, these do the arithmetic.
// Results do not depend on how many rows a step has; sets agree within rounding, and bit for bit
// in the quantisers.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace hadal {

template <class T>
struct RowLoops {
  void (*widen)(const T* x, int64_t n, float* y);
  // y = x * rsqrt(mean(x^2) + eps) * w.  w [n] may be null; y may be x.
  void (*rms)(const T* x, const float* w, float eps, int64_t n, T* y);
  // residual += delta; y = rms of the unrounded sum, which is left in `sum` [n].
  void (*add_rms)(T* residual, const T* delta, const float* w, float eps, int64_t n, float* sum,
                  T* y);
  // One block of at most 128 columns: writes its codes, returns its scale.
  float (*quantize_fp8)(const T* x, int64_t n, bool pow2, uint8_t* codes);
  // Round trips in place, in blocks of `block` and of 32.
  void (*qdq_fp8)(T* x, int64_t n, int64_t block);
  void (*qdq_fp4)(T* x, int64_t n);
  // x <- H x / sqrt(n).  buffer [n]
  void (*hadamard)(T* x, int64_t n, float* buffer);
  // y = w * silu(min(gate, bound)) * clamp(up, -bound, bound); y may be gate.
  void (*swiglu)(const T* gate, const T* up, float bound, float w, int64_t n, T* y);
  // sum += w * x;   y = sum (+ x where given)
  void (*accumulate)(const T* x, float w, int64_t n, float* sum);
  void (*finish)(const float* sum, const T* x, int64_t n, T* y);
  // Four streams at x, x + stride, ...: X[k] <- post[k] * a + sum_j comb[j][k] X[j].
  void (*expand4)(const T* a, const float* post, const float* comb, int64_t n, T* x,
                  int64_t stride);
  // y = sum_j pre[j] X[j] of four streams.
  void (*collapse4)(const T* x, int64_t stride, const float* pre, int64_t n, T* y);
  // Adjacent pairs (2i, 2i + 1) turned by angles [pairs, 2] = (cos, sign * sin); y may be x.
  void (*rotate)(const T* x, const float* angles, float sign, int64_t pairs, T* y);
};

struct RowKernels {
  RowLoops<float> f32;
  RowLoops<BF16> bf16;

  const RowLoops<float>& of(float) const { return f32; }
  const RowLoops<BF16>& of(BF16) const { return bf16; }
};

extern const RowKernels kRefRows, kAvx2Rows, kAvx512Rows;

}  // namespace hadal
