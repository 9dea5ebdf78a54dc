// YaRN frequencies in double precision, stored as fp32.
#include "model/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace hadal {

Tensor rope_freqs(Arena& arena, double theta, int64_t dim, const RopeScaling& s) {
  auto correction = [&](double rotations) {
    return dim * std::log(s.original_context / (2 * std::numbers::pi * rotations)) /
           (2 * std::log(theta));
  };
  double low = 0, high = 1;
  if (s.factor > 1) {
    low = std::max(std::floor(correction(s.beta_fast)), 0.0);
    high = std::min(std::ceil(correction(s.beta_slow)), double(dim - 1));
    if (low == high) high += 0.001;
  }
  std::vector<float> freqs(dim / 2);
  for (int64_t i = 0; i < dim / 2; ++i) {
    double f = std::pow(theta, -2.0 * i / dim);
    if (s.factor > 1) {
      double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
      f = f / s.factor * ramp + f * (1 - ramp);
    }
    freqs[i] = static_cast<float>(f);
  }
  return arena.make_from(DType::kF32, {dim / 2}, freqs.data());
}

double yarn_mscale(double factor, double mscale) {
  return factor > 1 && mscale > 0 ? 0.1 * mscale * std::log(factor) + 1.0 : 1.0;
}

}  // namespace hadal
