// AMX pieces: one tile shape for all eight tiles, ordering of memory around tile loads, and the
// 16 x 16 transposes that bring operands into the paired layout that TDPBF16PS wants.
#pragma once

#include "kernels/cpu/avx512_math.h"

#define HADAL_TARGET_AMX \
  "amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16,f16c,fma"

HADAL_TARGET_BEGIN(HADAL_TARGET_AMX)

namespace hadal {

// Every tile 16 rows of 64 bytes. Configured on the thread that uses tiles, released after.
struct TileScope {
  TileScope() {
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    asm volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
  }
  ~TileScope() { _tile_release(); }
  TileScope(const TileScope&) = delete;
};

// GCC 12 does not know that a tile load reads memory: stores before this line are done before
// loads after it.
inline void before_tile_loads() { asm volatile("" : : : "memory"); }

// Row i of the result is column i of the 32-bit elements of r.
inline void transpose16(__m512i* r) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // Now 128-bit lane l of r[4 g + c] holds column 4 l + c of rows 4 g .. 4 g + 3.
  for (int c = 0; c < 4; ++c) {
    __m512i a = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88);
    __m512i b = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88);
    __m512i d = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xDD);
    __m512i e = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xDD);
    t[c] = _mm512_shuffle_i32x4(a, b, 0x88);
    t[8 + c] = _mm512_shuffle_i32x4(a, b, 0xDD);
    t[4 + c] = _mm512_shuffle_i32x4(d, e, 0x88);
    t[12 + c] = _mm512_shuffle_i32x4(d, e, 0xDD);
  }
  for (int i = 0; i < 16; ++i) r[i] = t[i];
}

// The right operand from up to 16 rows of bf16 (heads): out[p * stride + h] = elements 2p, 2p + 1
// of row h, for `pairs` pairs (a multiple of 16); rows and elements past the end are 0.
inline void pack_pairs16(const BF16* rows, int64_t row_stride, int64_t count, int64_t d,
                         int64_t pairs, uint32_t* out, int64_t stride) {
  for (int64_t p = 0; p < pairs; p += 16) {
    __m512i r[16];
    for (int64_t h = 0; h < 16; ++h) {
      __mmask32 m = h < count && d > 2 * p ? Avx512::first32(d - 2 * p) : 0;
      r[h] = _mm512_maskz_loadu_epi16(m, rows + (h < count ? h : 0) * row_stride + 2 * p);
    }
    transpose16(r);
    for (int64_t i = 0; i < 16; ++i) _mm512_storeu_si512(out + (p + i) * stride, r[i]);
  }
}

}  // namespace hadal

HADAL_TARGET_END
