// AVX-512 attention. bf16: VDPBF16PS in both products; for the value product two keys are
// interleaved, so that a pair of probabilities meets a pair of values. fp32: the shared FMA loops.
#include "kernels/cpu/avx512_attention.h"

#include "kernels/cpu/attn_flow.h"
#include "kernels/cpu/avx512_math.h"

HADAL_TARGET_BEGIN(HADAL_TARGET_AVX512)

#include "kernels/cpu/attn_tiles.h"

namespace hadal {
namespace {

struct Tiles512 : FmaTiles<Avx512> {
  using FmaTiles::scores;
  using FmaTiles::values;
  using FmaTiles::write;

  static void scores(const BF16* q, int64_t q_stride, int64_t heads, const BF16* const* keys,
                     int64_t n, int64_t d, float scale, float* s) {
    __m512 factor = _mm512_set1_ps(scale);
    score_tiles(q, q_stride, heads, keys, n, s,
                [&](const BF16* const* qp, const BF16* const* kp, float* to) {
                  tile_bf16(qp, kp, d, factor, to);
                });
  }

  static void tile_bf16(const BF16* const* q, const BF16* const* k, int64_t d, __m512 scale,
                        float* s) {
    __m512 acc[16];
    for (auto& a : acc) a = _mm512_setzero_ps();
    for (int64_t c = 0; c < d; c += 32) {
      __mmask32 m = Avx512::first32(d - c);
      __m512bh kv[4];
      for (int j = 0; j < 4; ++j)
        kv[j] = reinterpret_cast<__m512bh>(_mm512_maskz_loadu_epi16(m, k[j] + c));
      for (int i = 0; i < 4; ++i) {
        __m512bh qv = reinterpret_cast<__m512bh>(_mm512_maskz_loadu_epi16(m, q[i] + c));
        for (int j = 0; j < 4; ++j) acc[i * 4 + j] = _mm512_dpbf16_ps(acc[i * 4 + j], qv, kv[j]);
      }
    }
    Avx512::tile_sums(acc, scale, s, kKeyBlock);
  }

  // bf16 probabilities take the first half of the scores' place: [kKeyBlock] bf16.
  template <class T>
  static float softmax(float* s, int64_t n, float top) {
    if constexpr (sizeof(T) == 4) return FmaTiles::softmax<T>(s, n, top);
    BF16* packed = reinterpret_cast<BF16*>(s);  // writes 2 bytes behind every 4 that were read
    return exponentials(s, n, top, [&](int64_t k, __m512 e) { Avx512::store(packed + k, e); });
  }

  // Columns of `acc` lie in the order that interleaving leaves: write() puts them right.
  static void values(const BF16* const* keys, int64_t n, const float* s, int64_t dv,
                     const float* factor, float* acc) {
    const int64_t width = padded(dv);
    for (int64_t c = 0; c < dv; c += 32) {
      __mmask32 m = Avx512::first32(dv - c);
      __m512 sum[kHeads][2];
      for (auto& pair : sum) pair[0] = pair[1] = _mm512_setzero_ps();
      for (int64_t k = 0; k < n; k += 2) {
        __m512i a = _mm512_maskz_loadu_epi16(m, keys[k] + c);
        __m512i b = _mm512_maskz_loadu_epi16(m, keys[k + 1 < n ? k + 1 : k] + c);
        __m512bh low = reinterpret_cast<__m512bh>(_mm512_unpacklo_epi16(a, b));
        __m512bh high = reinterpret_cast<__m512bh>(_mm512_unpackhi_epi16(a, b));
        for (int h = 0; h < kHeads; ++h) {
          __m512bh p = reinterpret_cast<__m512bh>(_mm512_set1_ps(s[h * kKeyBlock + k / 2]));
          sum[h][0] = _mm512_dpbf16_ps(sum[h][0], low, p);
          sum[h][1] = _mm512_dpbf16_ps(sum[h][1], high, p);
        }
      }
      for (int h = 0; h < kHeads; ++h) merge(sum[h], factor[h], acc + h * width + c);
    }
  }

  static void write(const float* acc, float den, int64_t dv, BF16* out) {
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i second =
        _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    __m512 d = _mm512_set1_ps(den);
    for (int64_t c = 0; c < dv; c += 32) {
      __m512 low = _mm512_div_ps(_mm512_loadu_ps(acc + c), d);
      __m512 high = _mm512_div_ps(_mm512_loadu_ps(acc + c + 16), d);
      Avx512::store(out + c, _mm512_permutex2var_ps(low, first, high), dv - c);
      Avx512::store(out + c + 16, _mm512_permutex2var_ps(low, second, high), dv - c - 16);
    }
  }
};

}  // namespace
}  // namespace hadal

HADAL_TARGET_END

namespace hadal {

void avx512_sparse_attention(Context& ctx, const Batch& batch, const SparseAttention& a) {
  flow_sparse<Tiles512>(ctx, batch, a);
}

void avx512_mla_attention(Context& ctx, const Batch& batch, const MlaAttention& a) {
  flow_mla<Tiles512>(ctx, batch, a);
}

}  // namespace hadal
