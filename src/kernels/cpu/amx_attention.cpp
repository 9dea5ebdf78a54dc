// AMX attention, bf16, sixteen heads per tile. A block of keys is gathered once for all heads of a
// row: as rows for the scores (keys x heads = K q^T) and with pairs of keys interleaved for the
// values (heads x columns = P^T V). Softmax runs on heads in lanes between the two.
#include "kernels/cpu/amx_attention.h"

#include <limits>

#include "kernels/cpu/amx_math.h"
#include "kernels/cpu/attn_flow.h"
#include "kernels/cpu/avx512_attention.h"

HADAL_TARGET_BEGIN(HADAL_TARGET_AMX)

namespace hadal {
namespace {

constexpr int64_t kKeys = 128;  // keys of a block: what it needs for 64 heads stays in L2

// The operands of one row, in one thread's scratch. heads: a multiple of 32, depth: of 32 (zero
// padded), width: columns of the values, a multiple of 32.
struct RowTiles {
  int64_t heads, depth, width;
  uint32_t* q;                // [depth / 2, heads] pairs
  BF16* keys;                 // [kKeys, depth]
  uint32_t* pairs;            // [kKeys / 2, width] columns in interleaving order, see write_head()
  float* s;                   // [kKeys, heads]
  BF16* p;                    // [heads, kKeys]
  float* acc;                 // [heads, width]
  float *top, *den, *factor;  // [heads]
};

void pack_queries(const BF16* q, int64_t q_stride, int64_t heads, int64_t d, const RowTiles& r) {
  for (int64_t h = 0; h < r.heads; h += 16)
    pack_pairs16(q + (h < heads ? h : 0) * q_stride, q_stride, heads - h, d, r.depth / 2, r.q + h,
                 r.heads);
}

// Copies n keys and interleaves them; keys up to `whole` (a multiple of 32) become zeros.
void gather(const BF16* const* keys, int64_t n, int64_t whole, int64_t d, int64_t dv,
            const RowTiles& r) {
  for (int64_t k = 0; k < whole; k += 2) {
    const BF16 *a = keys[k < n ? k : 0], *b = keys[k + 1 < n ? k + 1 : 0];
    for (int64_t c = 0; c < r.depth; c += 32) {
      __mmask32 m = Avx512::first32(d - c > 0 ? d - c : 0);
      __m512i x = _mm512_maskz_loadu_epi16(k < n ? m : 0, a + c);
      __m512i y = _mm512_maskz_loadu_epi16(k + 1 < n ? m : 0, b + c);
      _mm512_storeu_si512(r.keys + k * r.depth + c, x);
      _mm512_storeu_si512(r.keys + (k + 1) * r.depth + c, y);
      if (c >= dv) continue;
      uint32_t* to = r.pairs + k / 2 * r.width + c;
      _mm512_storeu_si512(to, _mm512_unpacklo_epi16(x, y));
      _mm512_storeu_si512(to + 16, _mm512_unpackhi_epi16(x, y));
    }
  }
}

// s = K q^T: tiles of 32 keys x 32 heads.
void score_block(const RowTiles& r, int64_t whole) {
  const int64_t key_bytes = r.depth * 2, head_bytes = r.heads * 4;
  for (int64_t k = 0; k < whole; k += 32)
    for (int64_t h = 0; h < r.heads; h += 32) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      for (int64_t c = 0; c < r.depth; c += 32) {
        const BF16* keys = r.keys + k * r.depth + c;
        const uint32_t* q = r.q + c / 2 * r.heads + h;
        _tile_loadd(4, keys, key_bytes);
        _tile_loadd(6, q, head_bytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, q + 16, head_bytes);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, keys + 16 * r.depth, key_bytes);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
      float* s = r.s + k * r.heads + h;
      _tile_stored(0, s, head_bytes);
      _tile_stored(1, s + 16, head_bytes);
      _tile_stored(2, s + 16 * r.heads, head_bytes);
      _tile_stored(3, s + 16 * r.heads + 16, head_bytes);
    }
}

// The running softmax of sixteen heads over n keys; probabilities as bf16 in r.p, zero past n.
void softmax16(const RowTiles& r, int64_t h, int64_t n, int64_t whole, float scale) {
  const __m512 by = _mm512_set1_ps(scale);
  __m512 before = _mm512_loadu_ps(r.top + h), top = before, sum = _mm512_setzero_ps();
  for (int64_t k = 0; k < n; ++k)
    top = _mm512_max_ps(top, _mm512_mul_ps(_mm512_loadu_ps(r.s + k * r.heads + h), by));
  auto weight = [&](int64_t k) {
    if (k >= n) return _mm512_setzero_ps();
    __m512 x = _mm512_mul_ps(_mm512_loadu_ps(r.s + k * r.heads + h), by);
    __m512 e = Avx512::exp(_mm512_sub_ps(x, top));
    sum = _mm512_add_ps(sum, e);
    return e;
  };
  for (int64_t k = 0; k < whole; k += 32) {
    __m512i rows[16];
    for (int i = 0; i < 16; ++i) {
      __m512i even = _mm512_cvtepu16_epi32(Avx512::narrow(weight(k + 2 * i)));
      __m512i odd = _mm512_cvtepu16_epi32(Avx512::narrow(weight(k + 2 * i + 1)));
      rows[i] = _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
    }
    transpose16(rows);
    for (int i = 0; i < 16; ++i) _mm512_storeu_si512(r.p + (h + i) * kKeys + k, rows[i]);
  }
  __m512 factor = Avx512::exp(_mm512_sub_ps(before, top));
  _mm512_storeu_ps(r.factor + h, factor);
  _mm512_storeu_ps(r.top + h, top);
  _mm512_storeu_ps(r.den + h, _mm512_fmadd_ps(_mm512_loadu_ps(r.den + h), factor, sum));
}

// acc <- acc * factor + P^T V: tiles of 32 heads x 32 columns.
void value_block(const RowTiles& r, int64_t whole) {
  const int64_t column_bytes = r.width * 4, p_bytes = kKeys * 2;
  alignas(64) float part[32 * 32];
  for (int64_t h = 0; h < r.heads; h += 32)
    for (int64_t c = 0; c < r.width; c += 32) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      for (int64_t k = 0; k < whole; k += 32) {
        const BF16* p = r.p + h * kKeys + k;
        const uint32_t* v = r.pairs + k / 2 * r.width + c;
        _tile_loadd(4, p, p_bytes);
        _tile_loadd(6, v, column_bytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, v + 16, column_bytes);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, p + 16 * kKeys, p_bytes);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
      _tile_stored(0, part, 128);
      _tile_stored(1, part + 16, 128);
      _tile_stored(2, part + 16 * 32, 128);
      _tile_stored(3, part + 16 * 32 + 16, 128);
      for (int64_t i = 0; i < 32; ++i) {
        float* acc = r.acc + (h + i) * r.width + c;
        __m512 f = _mm512_set1_ps(r.factor[h + i]);
        for (int64_t j = 0; j < 32; j += 16)
          _mm512_storeu_ps(acc + j, _mm512_fmadd_ps(_mm512_loadu_ps(acc + j), f,
                                                    _mm512_load_ps(part + i * 32 + j)));
      }
    }
}

void attend_block(const RowTiles& r, const BF16* const* keys, int64_t n, int64_t d, int64_t dv,
                  float scale) {
  const int64_t whole = (n + 31) / 32 * 32;
  gather(keys, n, whole, d, dv, r);
  before_tile_loads();
  score_block(r, whole);
  for (int64_t h = 0; h < r.heads; h += 16) softmax16(r, h, n, whole, scale);
  before_tile_loads();
  value_block(r, whole);
}

// out = acc / den, with the columns of each 32 in order again.
void write_head(const float* acc, float den, int64_t dv, BF16* out) {
  const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i second =
      _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  __m512 by = _mm512_set1_ps(den);
  for (int64_t c = 0; c < dv; c += 32) {
    __m512 low = _mm512_div_ps(_mm512_loadu_ps(acc + c), by);
    __m512 high = _mm512_div_ps(_mm512_loadu_ps(acc + c + 16), by);
    Avx512::store(out + c, _mm512_permutex2var_ps(low, first, high), dv - c);
    Avx512::store(out + c + 16, _mm512_permutex2var_ps(low, second, high), dv - c - 16);
  }
}

}  // namespace
}  // namespace hadal

HADAL_TARGET_END

namespace hadal {
namespace {

struct TileFloats {};
struct TileWords {};
struct TileHalves {};

RowTiles make_tiles(int64_t heads, int64_t d, int64_t dv) {
  RowTiles r{};
  r.heads = (heads + 31) / 32 * 32;
  r.depth = (d + 31) / 32 * 32;
  r.width = padded(dv);
  uint32_t* words = scratch<uint32_t, TileWords>(r.depth / 2 * r.heads + kKeys / 2 * r.width);
  r.q = words;
  r.pairs = words + r.depth / 2 * r.heads;
  BF16* halves = scratch<BF16, TileHalves>(kKeys * (r.depth + r.heads));
  r.keys = halves;
  r.p = halves + kKeys * r.depth;
  float* floats = scratch<float, TileFloats>(r.heads * (kKeys + r.width + 3));
  r.s = floats;
  r.acc = r.s + kKeys * r.heads;
  r.top = r.acc + r.heads * r.width;
  r.den = r.top + r.heads;
  r.factor = r.den + r.heads;
  return r;
}

// attend() of attn_flow.h.
void attend_tiles(const BF16* q, int64_t q_stride, int64_t heads, KeyList<BF16> list, int64_t d,
                  int64_t dv, float scale, const float* sink, BF16* out, int64_t out_stride) {
  RowTiles r = make_tiles(heads, d, dv);
  std::fill(r.acc, r.acc + r.heads * r.width, 0.0f);
  for (int64_t h = 0; h < r.heads; ++h) {
    r.top[h] = sink && h < heads ? sink[h] : -std::numeric_limits<float>::infinity();
    r.den[h] = std::isinf(r.top[h]) ? 0.0f : 1.0f;
  }
  pack_queries(q, q_stride, heads, d, r);
  {
    TileScope tiles;
    for (int64_t first = 0; first < list.size; first += kKeys)
      attend_block(r, list.keys + first, std::min(kKeys, list.size - first), d, dv, scale);
  }
  for (int64_t h = 0; h < heads; ++h)
    write_head(r.acc + h * r.width, r.den[h] > 0 ? r.den[h] : 1.0f, dv, out + h * out_stride);
}

}  // namespace

void amx_sparse_attention(Context& ctx, const Batch& batch, const SparseAttention& a) {
  if (a.q.dtype != DType::kBF16) return avx512_sparse_attention(ctx, batch, a);
  check_sparse(batch, a);
  int64_t heads = a.q.shape[1], d = a.q.shape[2];
  for_row_heads(ctx, batch.rows, heads, 32, [&](int64_t t, int64_t first, int64_t last) {
    attend_tiles(a.q.at<const BF16>(t, first), a.q.stride[1], last - first,
                 sparse_keys<BF16>(batch, a, t), d, d, a.scale, a.sink.at<const float>(first),
                 a.out.at<BF16>(t, first), a.out.stride[1]);
  });
}

void amx_mla_attention(Context& ctx, const Batch& batch, const MlaAttention& a) {
  if (a.q.dtype != DType::kBF16) return avx512_mla_attention(ctx, batch, a);
  check_mla(batch, a);
  int64_t heads = a.q.shape[1], d = a.q.shape[2], dv = a.out.shape[2];
  for_row_heads(ctx, batch.rows, heads, 32, [&](int64_t t, int64_t first, int64_t last) {
    attend_tiles(a.q.at<const BF16>(t, first), a.q.stride[1], last - first,
                 mla_keys<BF16>(batch, a, t), d, dv, a.scale, nullptr, a.out.at<BF16>(t, first),
                 a.out.stride[1]);
  });
}

}  // namespace hadal
