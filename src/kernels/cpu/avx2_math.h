// AVX2 and FMA registers under the names that the shared tile loops use; see avx512_math.h.
#pragma once

#include <cstring>

#include "base/dtype.h"
#include "kernels/cpu/exp.h"
#include "kernels/cpu/target.h"

HADAL_TARGET_BEGIN(HADAL_TARGET_AVX2)

namespace hadal {

struct Avx2 {
  using V = __m256;
  static constexpr int64_t kLanes = 8;
  static constexpr int kTileHeads = 2, kTileKeys = 4;
  static constexpr int kValueHeads = 4;
  static constexpr int kMixRows = 2, kMixMaps = 4;

  static V zero() { return _mm256_setzero_ps(); }
  static V set1(float x) { return _mm256_set1_ps(x); }
  static V add(V a, V b) { return _mm256_add_ps(a, b); }
  static V mul(V a, V b) { return _mm256_mul_ps(a, b); }
  static V div(V a, V b) { return _mm256_div_ps(a, b); }
  static V max(V a, V b) { return _mm256_max_ps(a, b); }
  static V fmadd(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }

  static V widen(__m128i bf16) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bf16), 16));
  }
  // The bf16 bits of each lane, in the low half of 32.
  static __m256i narrow32(V v) {
    __m256i u = _mm256_castps_si256(v);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    r = _mm256_blendv_epi8(r, _mm256_or_si256(u, _mm256_set1_epi32(0x400000)), nan);
    return _mm256_srli_epi32(r, 16);
  }
  static __m128i narrow(V v) {
    __m256i r = narrow32(v);
    return _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
  }
  static V round_bf16(V v) { return _mm256_castsi256_ps(_mm256_slli_epi32(narrow32(v), 16)); }

  static V load(const float* p) { return _mm256_loadu_ps(p); }
  static V load(const BF16* p) {
    return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static V load(const float* p, int64_t n) {
    if (n >= 8) return load(p);
    return n <= 0 ? zero() : _mm256_maskload_ps(p, first(n));
  }
  static V load(const BF16* p, int64_t n) {
    if (n >= 8) return load(p);
    BF16 part[8] = {};
    if (n > 0) std::memcpy(part, p, n * 2);
    return load(part);
  }
  static void store(float* p, V v) { _mm256_storeu_ps(p, v); }
  static void store(BF16* p, V v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow(v)); }
  static void store(float* p, V v, int64_t n) {
    if (n >= 8) return store(p, v);
    if (n > 0) _mm256_maskstore_ps(p, first(n), v);
  }
  static void store(BF16* p, V v, int64_t n) {
    if (n >= 8) return store(p, v);
    BF16 part[8];
    store(part, v);
    if (n > 0) std::memcpy(p, part, n * 2);
  }

  static void load2(const float* p, int64_t n, V* v) {
    v[0] = load(p, n);
    v[1] = load(p + 8, n - 8);
  }
  static void load2(const BF16* p, int64_t n, V* v) {
    BF16 part[16];
    if (n < 16) {
      std::memset(part, 0, sizeof part);
      std::memcpy(part, p, n * 2);
      p = part;
    }
    __m256i u = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    v[0] = _mm256_castsi256_ps(_mm256_slli_epi32(u, 16));
    v[1] = _mm256_castsi256_ps(_mm256_and_si256(u, _mm256_set1_epi32(int(0xFFFF0000))));
  }
  static void store2(float* p, int64_t n, const V* v) {
    store(p, v[0], n);
    store(p + 8, v[1], n - 8);
  }
  static void store2(BF16* p, int64_t n, const V* v) {
    __m256i u = _mm256_or_si256(narrow32(v[0]), _mm256_slli_epi32(narrow32(v[1]), 16));
    if (n >= 16) return _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), u);
    BF16 part[16];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(part), u);
    std::memcpy(p, part, n * 2);
  }

  static float sum(V v) {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
  }
  static float top(V v) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps(x, x, 1)));
  }

  static void tile_sums(const V* v, V scale, float* out, int64_t stride) {
    V s = mul(sum_lanes8(v), scale);
    _mm_storeu_ps(out, _mm256_castps256_ps128(s));
    _mm_storeu_ps(out + stride, _mm256_extractf128_ps(s, 1));
  }

  // Lane i of the result is the sum of v[i]'s lanes; every sum in the same order.
  static V sum_lanes8(const V* v) {
    V a[4], b[2];
    for (int i = 0; i < 4; ++i)
      a[i] = add(_mm256_unpacklo_ps(v[2 * i], v[2 * i + 1]),
                 _mm256_unpackhi_ps(v[2 * i], v[2 * i + 1]));
    for (int i = 0; i < 2; ++i) {
      __m256d x = _mm256_castps_pd(a[2 * i]), y = _mm256_castps_pd(a[2 * i + 1]);
      b[i] = add(_mm256_castpd_ps(_mm256_unpacklo_pd(x, y)),
                 _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)));
    }
    return add(_mm256_permute2f128_ps(b[0], b[1], 0x20), _mm256_permute2f128_ps(b[0], b[1], 0x31));
  }

  static V exp(V x) {
    // Operand order: a NaN in x is the second operand and passes through.
    x = _mm256_max_ps(set1(kExpLow), x);
    x = _mm256_min_ps(set1(kExpHigh), x);
    const V magic = set1(kRoundMagic);
    V t = fmadd(x, set1(kLog2E), magic);
    V n = _mm256_sub_ps(t, magic);
    V r = _mm256_fnmadd_ps(n, set1(kLn2High), x);
    r = _mm256_fnmadd_ps(n, set1(kLn2Low), r);
    V p = set1(kExpPoly[0]);
    for (int i = 1; i < 6; ++i) p = fmadd(p, r, set1(kExpPoly[i]));
    p = add(fmadd(p, mul(r, r), r), set1(1.0f));
    __m256i power = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), power));
  }

 private:
  static __m256i first(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

}  // namespace hadal

HADAL_TARGET_END
