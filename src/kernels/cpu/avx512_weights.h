// How the AVX-512 kernels read W: one "source" per stored format, all with the same face. A row is
// read in chunks of 128 columns (one FP8 block, four FP4 blocks). FP8, FP4 and bf16 come as four
// vectors of bf16 words, exact and without their block scale; f32 and f16 as eight of floats.
// The columns of a chunk lie in a format's own lane order (see Order), which x is brought into
// once per call, so that decoding needs no shuffle to undo.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/cpu/scratch.h"
#include "kernels/cpu/target.h"
#include "kernels/weight.h"

namespace hadal {

// Columns of a chunk in the 4 x 32 words of a decoded chunk:
//   kNatural  word i of vector j = column 32 j + i
//   kFp8      vectors 0 and 1 share columns 0..63: even groups of 8 columns go to 0, odd ones to 1
//             (what unpacklo / unpackhi of bytes leave); 2 and 3 share 64..127
//   kFp4      word i of vector j = column 4 i + j (nibble j of every 16-bit word)
// Floats made from words: vector 2 j holds the even words of vector j, 2 j + 1 the odd ones.
enum class Order { kNatural, kFp8, kFp4 };

inline constexpr int64_t kChunk = 128;

// bf16 bits of the 128 magnitudes of e4m3, and of the 16 codes of e2m1, twice, because a word
// lookup takes five index bits and the fifth belongs to the next code.
struct Bf16Tables {
  alignas(64) uint16_t fp8[128];
  alignas(64) uint16_t fp4[32];
  alignas(64) uint16_t fp4_high[32];  // times 2^125; both zeros are +0
  // Shuffles that bring scale byte i to the top of each float, or of each word, of lane i.
  alignas(64) uint32_t fp4_to_floats[16];
  alignas(64) uint32_t fp4_to_words[16];
};

constexpr Bf16Tables make_bf16_tables() {
  Bf16Tables t{};
  for (int code = 0; code < 128; ++code) {
    int exponent = code >> 3, mantissa = code & 7, bits = 0;
    if (code == 127) {
      bits = 0x7fc0;
    } else if (exponent > 0) {
      bits = (exponent + 120) << 7 | mantissa << 4;
    } else if (mantissa > 0) {  // mantissa * 2^-9, made normal
      int shift = mantissa >= 4 ? 1 : mantissa >= 2 ? 2 : 3;
      bits = (121 - shift) << 7 | ((mantissa << shift) & 7) << 4;
    }
    t.fp8[code] = static_cast<uint16_t>(bits);
  }
  constexpr uint16_t kMagnitude[8] = {0, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0};
  for (int code = 0; code < 32; ++code) {
    t.fp4[code] = static_cast<uint16_t>(kMagnitude[code & 7] | (code & 8) << 12);
    t.fp4_high[code] = static_cast<uint16_t>(code & 7 ? t.fp4[code] + (125 << 7) : 0);
  }
  for (uint32_t i = 0; i < 16; ++i) {
    uint32_t lane = i / 4;
    t.fp4_to_floats[i] = lane << 24 | 0xffffff;
    t.fp4_to_words[i] = lane << 24 | 0xff0000 | lane << 8 | 0xff;
  }
  return t;
}

inline constexpr Bf16Tables kBf16Tables = make_bf16_tables();

// FP8 scales of rows [begin, end) as fp32, [row blocks][column blocks], in `scratch`.
inline const float* expand_fp8_scales(const Weight& w, int64_t begin, int64_t end,
                                      Scratch& scratch) {
  int64_t columns = w.scale.shape[1], first = (w.row0 + begin) / kFp8Block;
  int64_t blocks = (w.row0 + end - 1) / kFp8Block - first + 1;
  auto* out = static_cast<float*>(scratch.grow(blocks * columns * 4));
  for (int64_t i = 0; i < blocks; ++i)
    for (int64_t j = 0; j < columns; ++j)
      out[i * columns + j] = fp8_scale(w, (first + i) * kFp8Block - w.row0, j);
  return out;
}

HADAL_TARGET_BEGIN(HADAL_TARGET_AVX512)
namespace {

struct Words {
  __m512i v0, v1, v2, v3;
};
struct Floats {
  __m512 v0, v1, v2, v3, v4, v5, v6, v7;
};

inline __mmask64 first_bytes(int64_t n) {
  return n >= 64 ? ~__mmask64{0} : n <= 0 ? 0 : (__mmask64{1} << n) - 1;
}

// 64 bytes at p, of which the first n exist; the others read as 0.
inline __m512i load_first(const void* p, int64_t n) {
  return n >= 64 ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi8(first_bytes(n), p);
}

// The even (low) and odd (high) words of a vector of bf16 as floats.
inline __m512 even_floats(__m512i words) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}
inline __m512 odd_floats(__m512i words) {
  return _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(-65536)));
}

inline Floats to_floats(const Words& w) {
  return {even_floats(w.v0), odd_floats(w.v0), even_floats(w.v1), odd_floats(w.v1),
          even_floats(w.v2), odd_floats(w.v2), even_floats(w.v3), odd_floats(w.v3)};
}
inline Floats to_floats(const Floats& f) { return f; }

// What f32_to_bf16 gives, NaN and subnormals included (the instruction flushes the latter).
inline __m256i round_to_bf16(__m512 f) {
  __m512i u = _mm512_castps_si512(f);
  __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  __m512i rounded =
      _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd), 16);
  __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x40));
  __mmask16 nan = _mm512_cmp_ps_mask(f, f, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, nan, quiet));
}

// Writes a 16 x 16 matrix of 32-bit elements, given by rows, by columns.
inline void store_transposed(const __m512i (&in)[16], void* memory) {
  auto* out = static_cast<char*>(memory);
  __m512i a[16], b[16];
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_epi32(in[i], in[i + 1]);
    a[i + 1] = _mm512_unpackhi_epi32(in[i], in[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; ++j) {
      b[i + 2 * j] = _mm512_unpacklo_epi64(a[i + j], a[i + 2 + j]);
      b[i + 2 * j + 1] = _mm512_unpackhi_epi64(a[i + j], a[i + 2 + j]);
    }
  // b[4 q + j]: columns j, j + 4, j + 8, j + 12 (one per 128-bit lane) of rows 4 q .. 4 q + 3
  for (int j = 0; j < 4; ++j) {
    __m512i low0 = _mm512_shuffle_i32x4(b[j], b[4 + j], 0x88);
    __m512i low1 = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0x88);
    __m512i high0 = _mm512_shuffle_i32x4(b[j], b[4 + j], 0xdd);
    __m512i high1 = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0xdd);
    _mm512_store_si512(out + 64 * j, _mm512_shuffle_i32x4(low0, low1, 0x88));
    _mm512_store_si512(out + 64 * (j + 4), _mm512_shuffle_i32x4(high0, high1, 0x88));
    _mm512_store_si512(out + 64 * (j + 8), _mm512_shuffle_i32x4(low0, low1, 0xdd));
    _mm512_store_si512(out + 64 * (j + 12), _mm512_shuffle_i32x4(high0, high1, 0xdd));
  }
}

// bf16 words times a power of two: exact, unless the result is no normal bf16.
inline __m512i scale_words(__m512i words, __m512 scale) {
  __m512i even = _mm512_castps_si512(_mm512_mul_ps(even_floats(words), scale));
  __m512i odd = _mm512_castps_si512(_mm512_mul_ps(odd_floats(words), scale));
  // odd's upper half over even's, moved down
  return _mm512_mask_mov_epi16(_mm512_srli_epi32(even, 16), 0xaaaaaaaa, odd);
}

// Brings the B bytes at p towards the core: near for the next loads, else only into L2. Inlined by
// force, because g++ drops calls to functions that do nothing but prefetch.
template <int64_t B>
[[gnu::always_inline]] inline void prefetch_bytes(const uint8_t* p, bool near) {
  for (int64_t i = 0; i < B; i += 64) {
    if (near)
      _mm_prefetch(reinterpret_cast<const char*>(p + i), _MM_HINT_T0);
    else
      _mm_prefetch(reinterpret_cast<const char*>(p + i), _MM_HINT_T1);
  }
}

inline __m512i join_halves(__m256i low, __m256i high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

// FP8 codes to bf16 by a lookup of the low and of the high byte.
struct Fp8Lookup {
  __m512i low0, low1, high0, high1;

  // Every value times `scale`, a power of two.
  static Fp8Lookup make(float scale) {
    __m512 s = _mm512_set1_ps(scale);
    __m256i low[4], high[4];
    for (int i = 0; i < 4; ++i) {
      __m512i words = scale_words(_mm512_load_si512(kBf16Tables.fp8 + 32 * i), s);
      low[i] = _mm512_cvtepi16_epi8(words);
      high[i] = _mm512_cvtepi16_epi8(_mm512_srli_epi16(words, 8));
    }
    return {join_halves(low[0], low[1]), join_halves(low[2], low[3]), join_halves(high[0], high[1]),
            join_halves(high[2], high[3])};
  }

  // 64 codes to 2 x 32 words, in the order that unpack leaves.
  void decode(__m512i codes, __m512i& first, __m512i& second) const {
    __m512i low = _mm512_permutex2var_epi8(low0, codes, low1);
    __m512i high = _mm512_permutex2var_epi8(high0, codes, high1);
    // high | (codes & 0x80): the lookup leaves the sign out
    high = _mm512_ternarylogic_epi32(high, codes, _mm512_set1_epi8(-128), 0xf8);
    first = _mm512_unpacklo_epi8(low, high);
    second = _mm512_unpackhi_epi8(low, high);
  }
};

struct Fp8Source {
  static constexpr Order kOrder = Order::kFp8;
  static constexpr int64_t kBytes = 128;  // of a chunk
  struct Row {
    const uint8_t* data;
    const float* scale;
  };

  // For rows [begin, end) of w.
  Fp8Source(const Weight& weight, int64_t begin, int64_t end, Scratch& scratch)
      : w(weight),
        scales(expand_fp8_scales(weight, begin, end, scratch)),
        first_block((weight.row0 + begin) / kFp8Block),
        lookup(Fp8Lookup::make(1.0f)) {}

  Row row(int64_t n) const {
    int64_t block = (w.row0 + n) / kFp8Block - first_block;
    return {w.data.at<const uint8_t>(n), scales + block * w.scale.shape[1]};
  }

  static Words decode(const Fp8Lookup& table, __m512i codes0, __m512i codes1) {
    Words out;
    table.decode(codes0, out.v0, out.v1);
    table.decode(codes1, out.v2, out.v3);
    return out;
  }

  Words load(const Row& r, int64_t c) const {
    const uint8_t* p = r.data + c * kBytes;
    return decode(lookup, _mm512_loadu_si512(p), _mm512_loadu_si512(p + 64));
  }
  Words load_tail(const Row& r, int64_t c, int64_t columns) const {
    const uint8_t* p = r.data + c * kBytes;
    return decode(lookup, load_first(p, columns), load_first(p + 64, columns - 64));
  }

  __m512 scale(const Row& r, int64_t c) const { return _mm512_set1_ps(r.scale[c]); }
  __m512 scale_tail(const Row& r, int64_t c, int64_t) const { return scale(r, c); }

  // With the block scale, a power of two, in the words. Cheap while the scale stays the same.
  Words load_folded(const Row& r, int64_t c) {
    const uint8_t* p = r.data + c * kBytes;
    return decode(fold(r.scale[c]), _mm512_loadu_si512(p), _mm512_loadu_si512(p + 64));
  }
  Words load_folded_tail(const Row& r, int64_t c, int64_t columns) {
    const uint8_t* p = r.data + c * kBytes;
    return decode(fold(r.scale[c]), load_first(p, columns), load_first(p + 64, columns - 64));
  }

  const Fp8Lookup& fold(float scale) {
    if (scale != folded_scale) refold(scale);
    return folded;
  }
  [[gnu::noinline]] void refold(float scale) {
    folded_scale = scale;
    folded = Fp8Lookup::make(scale);
  }

  const Weight& w;
  const float* scales;
  int64_t first_block;
  Fp8Lookup lookup;
  Fp8Lookup folded = lookup;
  float folded_scale = 1.0f;
};

struct Fp4Source {
  static constexpr Order kOrder = Order::kFp4;
  static constexpr int64_t kBytes = 64;
  struct Row {
    const uint8_t* data;
    const uint8_t* scale;
  };

  Fp4Source(const Weight& weight, int64_t, int64_t, Scratch&) : w(weight) {}

  Row row(int64_t n) const { return {w.data.at<const uint8_t>(n), w.scale.at<const uint8_t>(n)}; }

  static Words decode(__m512i table, __m512i codes) {
    return {_mm512_permutexvar_epi16(codes, table),
            _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 4), table),
            _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 8), table),
            _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 12), table)};
  }

  Words load(const Row& r, int64_t c) const {
    return decode(table, _mm512_loadu_si512(r.data + c * kBytes));
  }

  Words load_tail(const Row& r, int64_t c, int64_t columns) const {
    return decode(table, load_first(r.data + c * kBytes, columns / 2));
  }

  // Each 128-bit lane of the words is one scale block: brings byte i of the scales to lane i, to
  // the places where `spread` has a 0.
  static __m512i spread_scales(const Row& r, int64_t c, int64_t blocks, const uint32_t* spread) {
    uint32_t bytes = 0;
    if (blocks == 4)
      std::memcpy(&bytes, r.scale + c * 4, 4);
    else
      std::memcpy(&bytes, r.scale + c * 4, static_cast<size_t>(blocks));
    return _mm512_shuffle_epi8(_mm512_set1_epi32(static_cast<int>(bytes)),
                               _mm512_load_si512(spread));
  }

  // 2^(byte - 127): the byte is the exponent field, except that 0 means a subnormal. NaN (255)
  // reads as infinity, which leaves results just as useless.
  static __m512 scale_blocks(const Row& r, int64_t c, int64_t blocks) {
    __m512i bits = _mm512_srli_epi32(spread_scales(r, c, blocks, kBf16Tables.fp4_to_floats), 1);
    return _mm512_castsi512_ps(_mm512_max_epu32(bits, _mm512_set1_epi32(0x00400000)));
  }

  // With the block scales in the words. The codes are looked up at the top of the exponent range
  // (0.5 at 251), then 252 - byte is taken off the exponents; unsigned saturation keeps zeros zero.
  // Products below 2^-126 become 0, as tiles would read them anyway; scales above 2^125, which no
  // sum survives, are taken for 2^125.
  Words load_folded(const Row& r, int64_t c) const {
    return fold(decode(high_table, _mm512_loadu_si512(r.data + c * kBytes)), r, c, 4);
  }
  Words load_folded_tail(const Row& r, int64_t c, int64_t columns) const {
    return fold(decode(high_table, load_first(r.data + c * kBytes, columns / 2)), r, c,
                columns / kFp4Block);
  }
  Words fold(const Words& w, const Row& r, int64_t c, int64_t blocks) const {
    __m512i bytes = _mm512_srli_epi16(spread_scales(r, c, blocks, kBf16Tables.fp4_to_words), 1);
    __m512i off = _mm512_min_epu16(_mm512_subs_epu16(most, bytes), least);
    return {_mm512_subs_epu16(w.v0, off), _mm512_subs_epu16(w.v1, off),
            _mm512_subs_epu16(w.v2, off), _mm512_subs_epu16(w.v3, off)};
  }

  __m512 scale(const Row& r, int64_t c) const { return scale_blocks(r, c, 4); }
  __m512 scale_tail(const Row& r, int64_t c, int64_t columns) const {
    return scale_blocks(r, c, columns / kFp4Block);
  }

  const Weight& w;
  __m512i table = _mm512_load_si512(kBf16Tables.fp4);
  __m512i high_table = _mm512_load_si512(kBf16Tables.fp4_high);
  __m512i most = _mm512_set1_epi16(252 << 7), least = _mm512_set1_epi16(251 << 7);
};

// Formats without scale.
struct PlainRow {
  const uint8_t* data;
};

struct Bf16Source {
  static constexpr Order kOrder = Order::kNatural;
  static constexpr int64_t kBytes = 256;
  using Row = PlainRow;
  Bf16Source(const Weight& weight, int64_t, int64_t, Scratch&) : w(weight) {}

  Row row(int64_t n) const { return {reinterpret_cast<const uint8_t*>(w.data.at<BF16>(n))}; }

  Words load(const Row& r, int64_t c) const {
    const uint8_t* p = r.data + c * kBytes;
    return {_mm512_loadu_si512(p), _mm512_loadu_si512(p + 64), _mm512_loadu_si512(p + 128),
            _mm512_loadu_si512(p + 192)};
  }

  Words load_tail(const Row& r, int64_t c, int64_t columns) const {
    const uint8_t* p = r.data + c * kBytes;
    int64_t bytes = columns * 2;
    return {load_first(p, bytes), load_first(p + 64, bytes - 64), load_first(p + 128, bytes - 128),
            load_first(p + 192, bytes - 192)};
  }

  Words load_folded(const Row& r, int64_t c) const { return load(r, c); }
  Words load_folded_tail(const Row& r, int64_t c, int64_t columns) const {
    return load_tail(r, c, columns);
  }

  __m512 scale(const Row&, int64_t) const { return _mm512_set1_ps(1.0f); }
  __m512 scale_tail(const Row&, int64_t, int64_t) const { return _mm512_set1_ps(1.0f); }

  const Weight& w;
};

struct F32Source {
  static constexpr Order kOrder = Order::kNatural;
  static constexpr int64_t kBytes = 512;
  using Row = PlainRow;
  F32Source(const Weight& weight, int64_t, int64_t, Scratch&) : w(weight) {}

  Row row(int64_t n) const { return {reinterpret_cast<const uint8_t*>(w.data.at<float>(n))}; }

  Floats load(const Row& r, int64_t c) const {
    const auto* p = reinterpret_cast<const float*>(r.data) + c * kChunk;
    return {_mm512_loadu_ps(p),      _mm512_loadu_ps(p + 16), _mm512_loadu_ps(p + 32),
            _mm512_loadu_ps(p + 48), _mm512_loadu_ps(p + 64), _mm512_loadu_ps(p + 80),
            _mm512_loadu_ps(p + 96), _mm512_loadu_ps(p + 112)};
  }

  Floats load_tail(const Row& r, int64_t c, int64_t columns) const {
    const auto* p = reinterpret_cast<const float*>(r.data) + c * kChunk;
    auto part = [&](int i) {
      return _mm512_castsi512_ps(load_first(p + 16 * i, columns * 4 - 64 * i));
    };
    return {part(0), part(1), part(2), part(3), part(4), part(5), part(6), part(7)};
  }

  __m512 scale(const Row&, int64_t) const { return _mm512_set1_ps(1.0f); }
  __m512 scale_tail(const Row&, int64_t, int64_t) const { return _mm512_set1_ps(1.0f); }

  const Weight& w;
};

struct F16Source {
  static constexpr Order kOrder = Order::kNatural;
  static constexpr int64_t kBytes = 256;
  using Row = PlainRow;
  F16Source(const Weight& weight, int64_t, int64_t, Scratch&) : w(weight) {}

  Row row(int64_t n) const { return {reinterpret_cast<const uint8_t*>(w.data.at<uint16_t>(n))}; }

  Floats load(const Row& r, int64_t c) const { return load_tail(r, c, kChunk); }

  Floats load_tail(const Row& r, int64_t c, int64_t columns) const {
    const uint8_t* p = r.data + c * kBytes;
    auto part = [&](int i) {
      __mmask64 mask = first_bytes(columns * 2 - 32 * i) & 0xffffffffu;
      return _mm512_cvtph_ps(_mm256_maskz_loadu_epi8(static_cast<__mmask32>(mask), p + 32 * i));
    };
    return {part(0), part(1), part(2), part(3), part(4), part(5), part(6), part(7)};
  }

  __m512 scale(const Row&, int64_t) const { return _mm512_set1_ps(1.0f); }
  __m512 scale_tail(const Row&, int64_t, int64_t) const { return _mm512_set1_ps(1.0f); }

  const Weight& w;
};

}  // namespace
HADAL_TARGET_END
}  // namespace hadal
