// How the matrix products for few rows read: weights in pieces of 16 bytes that pass the first
// cache by, and words of any format as fp32. Every decoded value is the exact one of base/dtype.h.
// Part of the portable kernels (kl.h).
#pragma once

#include "kernels/gpu/kl.h"

namespace hadal::KL_TARGET {

template <int kWords>
struct alignas(kWords >= 4 ? 16 : kWords * 4) [[gnu::may_alias]] Words {
  uint32_t word[kWords];
};
using Bits128 = Words<4>;

// 16 bytes at a multiple of 16 that this block alone reads, once: x keeps the first cache.
KL_DEVICE Bits128 load_once(const char* p) {
  Bits128 v;
#if defined(__CUDA_ARCH__)
  asm("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
      : "l"(p));
#elif defined(__HIP__)
  using Vector = __attribute__((ext_vector_type(4))) uint32_t;
  Vector bits = __builtin_nontemporal_load(reinterpret_cast<const Vector*>(p));
  for (int i = 0; i < 4; ++i) v.word[i] = bits[i];
#else
  v = *reinterpret_cast<const Bits128*>(p);
#endif
  return v;
}

// The number itself; clang makes such numbers in the order of the text. Without that it decodes all
// that was loaded before it uses any, for which it would need all registers.
template <class T>
KL_DEVICE T in_order(T v) {
#if defined(__HIP_DEVICE_COMPILE__)
  asm volatile("" : "+v"(v));
#endif
  return v;
}

// Four e4m3 codes, the first in the low byte.
KL_DEVICE void e4m3x4_to_f32(uint32_t v, float* out) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint32_t low, high;
  asm("{.reg .b16 a, b; mov.b32 {a, b}, %2;"
      " cvt.rn.f16x2.e4m3x2 %0, a; cvt.rn.f16x2.e4m3x2 %1, b;}"
      : "=r"(low), "=r"(high)
      : "r"(v));
  asm("{.reg .f16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b;}"
      : "=f"(out[0]), "=f"(out[1])
      : "r"(low));
  asm("{.reg .f16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b;}"
      : "=f"(out[2]), "=f"(out[3])
      : "r"(high));
#else
  // Seven bits under a sign that is smeared down four places are the value times 2^-120, also
  // where it is subnormal; the code that is left over, 480, is NaN.
  KL_UNROLL
  for (int i = 0; i < 4; ++i) {
    int32_t top = static_cast<int32_t>(v << (24 - 8 * i)) >> 4;
    float x = std::bit_cast<float>(static_cast<uint32_t>(top) & 0x87f00000u) * 0x1p120f;
    out[i] = fabsf(x) > 448.0f ? std::bit_cast<float>(0x7fc00000u) : x;
  }
#endif
}

// Eight e2m1 codes, the first in the low nibble.
KL_DEVICE void e2m1x8_to_f32(uint32_t v, float* out) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  // A code's three bits in the middle of an e4m3 code are its value times 2^-6.
  float even[4], odd[4];
  e4m3x4_to_f32((v << 4 & 0x80808080u) | (v << 2 & 0x1c1c1c1cu), even);
  e4m3x4_to_f32((v & 0x80808080u) | (v >> 2 & 0x1c1c1c1cu), odd);
  KL_UNROLL
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = even[i];
    out[2 * i + 1] = odd[i];
  }
#else
  KL_UNROLL
  for (int i = 0; i < 8; ++i) {
    int32_t top = static_cast<int32_t>(v << (28 - 4 * i)) >> 6;
    out[i] = std::bit_cast<float>(static_cast<uint32_t>(top) & 0x81c00000u) * 0x1p120f;
  }
#endif
}

KL_DEVICE float scale_value(float s) { return s; }
KL_DEVICE float scale_value(uint8_t s) {  // e8m0_to_f32 without branches
  return std::bit_cast<float>(uint32_t{s} << 23 | (s == 0 || s == 255 ? 0x400000u : 0));
}

// A format: numbers per 32-bit word, and their values times kUnit of a word. The scale is one per
// kScaleColumns columns and kScaleRows rows, of type Scale.
struct NoScale {};
struct Plain {
  using Scale = NoScale;
  static constexpr float kUnit = 1;
  static constexpr int kScaleRows = 1, kScaleColumns = 1;
};
struct AsF32 : Plain {
  static constexpr int kPerWord = 1;
  KL_DEVICE static void decode(uint32_t v, float* out) { out[0] = std::bit_cast<float>(v); }
};
struct AsBF16 : Plain {
  static constexpr int kPerWord = 2;
  KL_DEVICE static void decode(uint32_t v, float* out) {
    out[0] = std::bit_cast<float>(v << 16);
    out[1] = std::bit_cast<float>(v & 0xffff0000u);
  }
};
struct AsF16 : Plain {
  static constexpr int kPerWord = 2;
  KL_DEVICE static void decode(uint32_t v, float* out) {
    out[0] = f16_to_f32(static_cast<uint16_t>(v & 0xffffu));
    out[1] = f16_to_f32(static_cast<uint16_t>(v >> 16));
  }
};
template <class S>
struct AsFp8 {
  using Scale = S;
  static constexpr float kUnit = 1;
  static constexpr int kPerWord = 4, kScaleRows = 128, kScaleColumns = 128;
  KL_DEVICE static void decode(uint32_t v, float* out) { e4m3x4_to_f32(v, out); }
};
struct AsFp4 {
  using Scale = uint8_t;
  static constexpr float kUnit = 64;
  static constexpr int kPerWord = 8, kScaleRows = 1, kScaleColumns = 32;
  KL_DEVICE static void decode(uint32_t v, float* out) { e2m1x8_to_f32(v, out); }
};

}  // namespace hadal::KL_TARGET
