// Number formats of the released checkpoints and their conversions, one value at a time.
// These inline functions are the definition; vector code in kernels/ must agree with them bit for
// bit. Source: spec V4 section 2.3 and 3.1, spec V3.2 section 6.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

// GPU compilers build these functions for the device too.
#if defined(__CUDACC__) || defined(__HIP__)
#define HADAL_HD __host__ __device__
#else
#define HADAL_HD
#endif

namespace hadal {

enum class DType : uint8_t {
  kF32,
  kBF16,
  kF16,
  kF8E4M3,  // 1-4-3, bias 7, no infinities, max 448, 0x7F/0xFF NaN
  kF8E8M0,  // a power of two: 2^(byte - 127), 0xFF NaN
  kI8,      // in a weight: two packed FP4 (E2M1) codes, low nibble first
  kI32,
  kI64,
};

// Bytes of one stored element.
HADAL_HD constexpr int64_t dtype_size(DType t) {
  switch (t) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kI64:
      return 8;
    default:
      return 1;
  }
}

// The tag that safetensors files use ("BF16", "F8_E4M3", ...).
constexpr const char* dtype_name(DType t) {
  switch (t) {
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kF16:
      return "F16";
    case DType::kF8E4M3:
      return "F8_E4M3";
    case DType::kF8E8M0:
      return "F8_E8M0";
    case DType::kI8:
      return "I8";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
  }
  return "?";
}

struct BF16 {
  uint16_t bits;
};

HADAL_HD inline float bf16_to_f32(BF16 v) { return std::bit_cast<float>(uint32_t{v.bits} << 16); }

// Round to nearest, ties to even; NaN stays NaN.
HADAL_HD inline BF16 f32_to_bf16(float f) {
  uint32_t u = std::bit_cast<uint32_t>(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((u >> 16) | 0x40)};
  return {static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1)) >> 16)};
}

// The fp32 value of x after rounding to bf16.
HADAL_HD inline float round_bf16(float x) { return bf16_to_f32(f32_to_bf16(x)); }

HADAL_HD inline float f16_to_f32(uint16_t h) {
  uint32_t sign = uint32_t(h & 0x8000u) << 16, exp = (h >> 10) & 31, man = h & 0x3ffu;
  if (exp == 31) return std::bit_cast<float>(sign | 0x7f800000u | (man << 13));
  if (exp == 0) {
    float v = std::ldexp(static_cast<float>(man), -24);
    return sign ? -v : v;
  }
  return std::bit_cast<float>(sign | ((exp + 112) << 23) | (man << 13));
}

HADAL_HD inline float e4m3_to_f32(uint8_t b) {
  uint32_t sign = uint32_t(b & 0x80u) << 24, exp = (b >> 3) & 15, man = b & 7u;
  if (exp == 15 && man == 7) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (exp == 0) {
    float v = static_cast<float>(man) * 0x1p-9f;
    return sign ? -v : v;
  }
  return std::bit_cast<float>(sign | ((exp + 120) << 23) | (man << 20));
}

// Round to nearest, ties to even, of a value already clamped to [-448, 448].
HADAL_HD inline uint8_t f32_to_e4m3(float x) {
  uint32_t u = std::bit_cast<uint32_t>(x);
  uint8_t sign = static_cast<uint8_t>((u >> 24) & 0x80);
  float a = std::fabs(x);
  if (std::isnan(x)) return sign | 0x7f;
  if (a < 0x1p-6f) {  // subnormal: multiples of 2^-9
    return sign | static_cast<uint8_t>(std::nearbyintf(a * 512.0f));
  }
  uint32_t v = std::bit_cast<uint32_t>(a);
  v += 0x7ffffu + ((v >> 20) & 1);
  uint32_t code = (v >> 20) - (120u << 3);
  return sign | static_cast<uint8_t>(code > 0x7e ? 0x7e : code);
}

HADAL_HD inline float e8m0_to_f32(uint8_t b) {
  if (b == 255) return std::bit_cast<float>(0x7fc00000u);
  if (b == 0) return 0x1p-127f;
  return std::bit_cast<float>(uint32_t{b} << 23);
}

inline constexpr float kE2M1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                    -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

// Round to nearest of a value already clamped to [-6, 6]; ties go to the even code.
HADAL_HD inline uint8_t f32_to_e2m1(float x) {
  uint8_t sign = std::signbit(x) ? 8 : 0;
  float a = std::fabs(x);
  uint8_t code = a <= 0.25f   ? 0
                 : a < 0.75f  ? 1
                 : a <= 1.25f ? 2
                 : a < 1.75f  ? 3
                 : a <= 2.5f  ? 4
                 : a < 3.5f   ? 5
                 : a <= 5.0f  ? 6
                              : 7;
  return sign | code;
}

// 2^ceil(log2(t)) for t > 0, from the bits (spec V4 3.1).
HADAL_HD inline float ceil_pow2(float t) {
  uint32_t u = std::bit_cast<uint32_t>(t);
  uint32_t k = (u >> 23) + ((u & 0x7fffffu) != 0);
  return std::bit_cast<float>(k << 23);
}

// Scale of one FP8 activation block: floor 1e-4 on amax; pow2 rounds it up to a power of two.
HADAL_HD inline float fp8_block_scale(float amax, bool pow2) {
  amax = std::fmax(amax, 1e-4f);
  return pow2 ? ceil_pow2(amax * std::bit_cast<float>(0x3B124925u)) : amax / 448.0f;
}

// Scale of one FP4 block (spec V4 3.2).
HADAL_HD inline float fp4_block_scale(float amax) {
  return ceil_pow2(std::fmax(amax, 6 * 0x1p-126f) * (1.0f / 6.0f));
}

// An activation element: float (exact numerics) or BF16 (release numerics).
HADAL_HD inline float load(float v) { return v; }
HADAL_HD inline float load(BF16 v) { return bf16_to_f32(v); }
HADAL_HD inline void store(float& d, float v) { d = v; }
HADAL_HD inline void store(BF16& d, float v) { d = f32_to_bf16(v); }

}  // namespace hadal
