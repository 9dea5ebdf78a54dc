// AVX-512 registers under the names that the shared tile loops use (attn_tiles.h, hyper_tiles.h,
// index_tiles.h), and the pieces that several kernels use. Needs F, BW, DQ, VL and BF16.
#pragma once

#include "base/dtype.h"
#include "kernels/cpu/exp.h"
#include "kernels/cpu/target.h"

HADAL_TARGET_BEGIN(HADAL_TARGET_AVX512)

namespace hadal {

struct Avx512 {
  using V = __m512;
  static constexpr int64_t kLanes = 16;
  static constexpr int kTileHeads = 4, kTileKeys = 4;  // accumulators of the score tile: 16
  static constexpr int kValueHeads = 8;                // times two registers of columns
  static constexpr int kMixRows = 4, kMixMaps = 6;     // hyper_pre: tokens x maps

  static V zero() { return _mm512_setzero_ps(); }
  static V set1(float x) { return _mm512_set1_ps(x); }
  static V add(V a, V b) { return _mm512_add_ps(a, b); }
  static V mul(V a, V b) { return _mm512_mul_ps(a, b); }
  static V div(V a, V b) { return _mm512_div_ps(a, b); }
  static V max(V a, V b) { return _mm512_max_ps(a, b); }
  static V fmadd(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }

  static __mmask16 first16(int64_t n) {
    return n >= 16 ? 0xFFFF : n <= 0 ? 0 : static_cast<__mmask16>((1u << n) - 1);
  }
  static __mmask32 first32(int64_t n) {
    return n >= 32 ? 0xFFFFFFFFu : static_cast<__mmask32>((1u << n) - 1);
  }

  static V widen(__m256i bf16) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16));
  }
  // Round to nearest even, NaN stays NaN, as f32_to_bf16(). (VCVTNEPS2BF16 flushes subnormals.)
  static __m256i narrow(V v) {
    __m512i u = _mm512_castps_si512(v);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    r = _mm512_mask_or_epi32(r, nan, u, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16));
  }
  static V round_bf16(V v) { return widen(narrow(v)); }

  static V load(const float* p) { return _mm512_loadu_ps(p); }
  static V load(const BF16* p) {
    return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  // Lanes past n are 0, and nothing past n is read.
  static V load(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(first16(n), p); }
  static V load(const BF16* p, int64_t n) { return widen(_mm256_maskz_loadu_epi16(first16(n), p)); }
  static void store(float* p, V v) { _mm512_storeu_ps(p, v); }
  static void store(BF16* p, V v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(v)); }
  static void store(float* p, V v, int64_t n) { _mm512_mask_storeu_ps(p, first16(n), v); }
  static void store(BF16* p, V v, int64_t n) { _mm256_mask_storeu_epi16(p, first16(n), narrow(v)); }

  // 2 * kLanes values in an order of the type's choice, the same for every row: fp32 in halves,
  // bf16 as even and odd columns, which needs no shuffle.
  static void load2(const float* p, int64_t n, V* v) {
    v[0] = load(p, n);
    v[1] = load(p + 16, n - 16);
  }
  static void load2(const BF16* p, int64_t n, V* v) {
    __m512i u = _mm512_maskz_loadu_epi16(first32(n), p);
    v[0] = _mm512_castsi512_ps(_mm512_slli_epi32(u, 16));
    v[1] = _mm512_castsi512_ps(_mm512_and_si512(u, _mm512_set1_epi32(int(0xFFFF0000))));
  }
  // Puts them back in columns.
  static void store2(float* p, int64_t n, const V* v) {
    store(p, v[0], n);
    store(p + 16, v[1], n - 16);
  }
  static void store2(BF16* p, int64_t n, const V* v) {
    __m512i even = _mm512_cvtepu16_epi32(narrow(v[0])), odd = _mm512_cvtepu16_epi32(narrow(v[1]));
    _mm512_mask_storeu_epi16(p, first32(n), _mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
  }

  static float sum(V v) { return _mm512_reduce_add_ps(v); }
  static float top(V v) { return _mm512_reduce_max_ps(v); }

  // out[i * stride + j] = sum of the lanes of v[i * 4 + j]; every sum in the same order.
  static void tile_sums(const V* v, V scale, float* out, int64_t stride) {
    V s = mul(sum_lanes16(v), scale);
    _mm_storeu_ps(out, _mm512_extractf32x4_ps(s, 0));
    _mm_storeu_ps(out + stride, _mm512_extractf32x4_ps(s, 1));
    _mm_storeu_ps(out + 2 * stride, _mm512_extractf32x4_ps(s, 2));
    _mm_storeu_ps(out + 3 * stride, _mm512_extractf32x4_ps(s, 3));
  }

  // Lane i of the result is the sum of v[i]'s lanes.
  static V sum_lanes16(const V* v) {
    V a[8], b[4], c[2];
    for (int i = 0; i < 8; ++i)
      a[i] = add(_mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]),
                 _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]));
    for (int i = 0; i < 4; ++i) {
      __m512d x = _mm512_castps_pd(a[2 * i]), y = _mm512_castps_pd(a[2 * i + 1]);
      b[i] = add(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)),
                 _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
    }
    // Now 128-bit lane l of b[i] holds the partial sums of v[4 i .. 4 i + 3].
    for (int i = 0; i < 2; ++i)
      c[i] = add(_mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0x88),
                 _mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0xDD));
    return add(_mm512_shuffle_f32x4(c[0], c[1], 0x88), _mm512_shuffle_f32x4(c[0], c[1], 0xDD));
  }

  // exp_approx() of sixteen values.
  static V exp(V x) {
    // Operand order: a NaN in x is the second operand and passes through.
    x = _mm512_max_ps(set1(kExpLow), x);
    x = _mm512_min_ps(set1(kExpHigh), x);
    const V magic = set1(kRoundMagic);
    V t = fmadd(x, set1(kLog2E), magic);
    V n = _mm512_sub_ps(t, magic);
    V r = _mm512_fnmadd_ps(n, set1(kLn2High), x);
    r = _mm512_fnmadd_ps(n, set1(kLn2Low), r);
    V p = set1(kExpPoly[0]);
    for (int i = 1; i < 6; ++i) p = fmadd(p, r, set1(kExpPoly[i]));
    p = add(fmadd(p, mul(r, r), r), set1(1.0f));
    __m512i power = _mm512_slli_epi32(_mm512_castps_si512(t), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), power));
  }
};

}  // namespace hadal

HADAL_TARGET_END
