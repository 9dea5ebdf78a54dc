// Rotation frequencies of a layer kind, computed once at load.
#pragma once

#include "base/buffer.h"
#include "model/config.h"

namespace hadal {

// [dim / 2] f32 in `arena`: freqs[i] = theta^(-2i/dim), blended with the 1/factor-scaled ones by
// YaRN's ramp where scaling.factor > 1. Source: spec V4 3.5, spec V3.2 3.5.
Tensor rope_freqs(Arena& arena, double theta, int64_t dim, const RopeScaling& scaling);

// 0.1 * mscale * ln(factor) + 1 where factor > 1 and mscale > 0, else 1 (spec V3.2 3.4).
double yarn_mscale(double factor, double mscale);

}  // namespace hadal
