// AVX-512 indexer scores: heads in lanes. bf16: a pair of key elements is broadcast against pairs
// of the sixteen heads' elements.
#include "kernels/cpu/avx512_index_score.h"

#include "kernels/cpu/avx512_math.h"
#include "kernels/cpu/index_flow.h"

HADAL_TARGET_BEGIN(HADAL_TARGET_AVX512)

#include "kernels/cpu/index_tiles.h"

namespace hadal {
namespace {

// keys: kIndexKeys rows of `depth` pairs.
void four_keys(const IndexRow<uint32_t>& row, bool round, const BF16* const* keys, float* out) {
  index_keys<Avx512, 4, kIndexKeys>(
      row, round, out,
      [&](int64_t d, int k) { return _mm512_set1_epi32(reinterpret_cast<const int*>(keys[k])[d]); },
      [](__m512 acc, const uint32_t* q, __m512i x) {
        return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(_mm512_loadu_si512(q)),
                                reinterpret_cast<__m512bh>(x));
      });
}

void four_keys(const IndexRow<float>& row, bool round, const float* const* keys, float* copy,
               float* out) {
  for (int k = 0; k < kIndexKeys; ++k) widen_row<Avx512>(keys[k], row.depth, copy + k * row.depth);
  index_keys_fma<Avx512, 4, kIndexKeys>(row, round, copy, out);
}

}  // namespace
}  // namespace hadal

HADAL_TARGET_END

namespace hadal {
namespace {

struct IndexPairs {};
struct IndexKeyPairs {};

// q [pairs, padded_heads] of bf16 pairs; an odd last element is paired with 0.
uint32_t* transposed_pairs(const IndexScore& s, int64_t t, int64_t padded_heads) {
  int64_t heads = s.q.shape[1], d = s.q.shape[2], pairs = (d + 1) / 2;
  uint32_t* q = scratch<uint32_t, IndexPairs>(pairs * padded_heads);
  std::fill(q, q + pairs * padded_heads, 0u);
  for (int64_t h = 0; h < heads; ++h) {
    const BF16* from = s.q.at<const BF16>(t, h);
    for (int64_t i = 0; i < d; ++i)
      q[i / 2 * padded_heads + h] |= uint32_t{from[i].bits} << (i % 2 * 16);
  }
  return q;
}

void score_bf16(Context& ctx, const Batch& batch, const IndexScore& s, int64_t heads) {
  int64_t d = s.q.shape[2], pairs = (d + 1) / 2;
  thread_local IndexRow<uint32_t> row;
  for_index_blocks(
      ctx, batch, s,
      [&](int64_t t) {
        row = {transposed_pairs(s, t, heads), padded_weights(s, t, heads), heads, pairs};
      },
      [&](int64_t i, int64_t t, int64_t begin, int64_t end) {
        BF16* copy = scratch<BF16, IndexKeyPairs>(kIndexKeys * pairs * 2);
        for_four_keys<BF16>(s, batch.sequence[t], begin, end, s.scores.at<float>(i),
                            [&](const BF16** keys, float* out) {
                              if (d % 2) {  // whole pairs only: what follows a row may be NaN
                                for (int k = 0; k < kIndexKeys; ++k) {
                                  BF16* to = copy + k * pairs * 2;
                                  std::copy(keys[k], keys[k] + d, to);
                                  to[d] = BF16{0};
                                  keys[k] = to;
                                }
                              }
                              four_keys(row, s.round_bf16, keys, out);
                            });
      });
}

void score_f32(Context& ctx, const Batch& batch, const IndexScore& s, int64_t heads) {
  int64_t d = s.q.shape[2];
  thread_local IndexRow<float> row;
  for_index_blocks(
      ctx, batch, s,
      [&](int64_t t) {
        row = {transposed_queries<float>(s, t, heads), padded_weights(s, t, heads), heads, d};
      },
      [&](int64_t i, int64_t t, int64_t begin, int64_t end) {
        float* copy = scratch<float, IndexKeyCopy>(kIndexKeys * d);
        for_four_keys<float>(s, batch.sequence[t], begin, end, s.scores.at<float>(i),
                             [&](const float* const* keys, float* out) {
                               four_keys(row, s.round_bf16, keys, copy, out);
                             });
      });
}

}  // namespace

void avx512_index_score(Context& ctx, const Batch& batch, const IndexScore& s) {
  check_index(batch, s);
  int64_t heads = (s.q.shape[1] + 15) / 16 * 16;
  if (s.q.dtype == DType::kBF16) return score_bf16(ctx, batch, s, heads);
  HADAL_CHECK(s.q.dtype == DType::kF32, "[index_score] q is " + s.q.describe());
  score_f32(ctx, batch, s, heads);
}

}  // namespace hadal
