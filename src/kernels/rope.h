// Rotary positions. Source: spec V4 3.5, spec V3.2 3.5. Independent of T.
#pragma once

#include "base/tensor.h"
#include "kernels/op.h"

namespace hadal {

enum class RopePairs {
  kAdjacent,  // (2i, 2i+1): MLA, all of V4
  kHalves,    // (i, i + R/2): the V3.2 indexer
};

// angles[t, i] = (cos, sin) of float(position_t) * freqs[i], the product in fp32.
// positions [T] i32, freqs [R/2] f32, angles [T, R/2, 2] f32.
void rope_angles(Context& ctx, const int32_t* positions, const Tensor& freqs, const Tensor& angles);

// Rotates the R-wide vectors x [T, H, R] into y [T, H, R] (may be x; strides free, last dim
// adjacent), all heads of row t by angles[t]. inverse rotates by minus the angle.
void rope(Context& ctx, const Tensor& x, const Tensor& angles, RopePairs pairs, bool inverse,
          const Tensor& y);

}  // namespace hadal
