// e^x without a call, in a form that compilers vectorise: argument reduction by the nearest
// multiple of ln 2 and a polynomial fitted on [-ln2/2, ln2/2]. Within 2 ulp over [-87.3, 88.7];
// smaller arguments give about 1e-38, larger ones about 3e38, NaN stays NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace hadal {

inline constexpr float kExpLow = -87.3365f, kExpHigh = 88.72f;
inline constexpr float kLog2E = 1.44269504f;
// ln 2 in two parts; the first has trailing zero bits, so that n * kLn2High is exact.
inline constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
// Adding it leaves the nearest integer in the low bits of the mantissa.
inline constexpr float kRoundMagic = 12582912.0f;
// (e^r - 1 - r) / r^2, highest power first.
inline constexpr float kExpPoly[6] = {1.9891080e-4f, 1.3933731e-3f, 8.3333108e-3f,
                                      4.1666464e-2f, 1.6666667e-1f, 0.5f};

inline float exp_approx(float x) {
  x = x < kExpLow ? kExpLow : x;
  x = x > kExpHigh ? kExpHigh : x;
  float t = x * kLog2E + kRoundMagic;
  float n = t - kRoundMagic;
  float r = x - n * kLn2High;
  r = r - n * kLn2Low;
  float p = kExpPoly[0];
  for (int i = 1; i < 6; ++i) p = p * r + kExpPoly[i];
  p = p * (r * r) + r + 1.0f;
  uint32_t power = std::bit_cast<uint32_t>(t) << 23;  // 2^n: the magic's own bits leave at the top
  return std::bit_cast<float>(std::bit_cast<uint32_t>(p) + power);
}

}  // namespace hadal
