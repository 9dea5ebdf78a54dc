// AMX indexer scores. Left operand: keys as they lie in their page (copied where they are not 16
// adjacent rows or not whole tiles wide); right operand: a row's queries, packed once. ReLU, weight
// and the sum over heads are AVX-512 on the finished tiles.
#include "kernels/cpu/amx_index_score.h"

#include "kernels/cpu/amx_math.h"
#include "kernels/cpu/avx512_index_score.h"
#include "kernels/cpu/index_flow.h"

HADAL_TARGET_BEGIN(HADAL_TARGET_AMX)

#include "kernels/cpu/index_tiles.h"

namespace hadal {
namespace {

// One row's queries: [pairs, heads] with heads a multiple of 32, pairs of 16.
struct PackedQueries {
  const uint32_t* q;
  const float* w;
  int64_t heads, pairs;
};

// dots[key * 32 + head] of 32 keys x 32 heads from head h on.  keys: 16 rows each at a and b
void dot_tiles(const PackedQueries& p, int64_t h, const BF16* a, const BF16* b, int64_t key_stride,
               float* dots) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t k = 0; k < p.pairs; k += 16) {
    const uint32_t* q = p.q + k * p.heads + h;
    _tile_loadd(4, a + 2 * k, key_stride * 2);
    _tile_loadd(6, q, p.heads * 4);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, q + 16, p.heads * 4);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, b + 2 * k, key_stride * 2);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, dots, 128);
  _tile_stored(1, dots + 16, 128);
  _tile_stored(2, dots + 16 * 32, 128);
  _tile_stored(3, dots + 16 * 32 + 16, 128);
}

// scores[0, 32) of 32 keys.
void score32(const PackedQueries& p, bool round, const BF16* a, const BF16* b, int64_t key_stride,
             float* scores) {
  alignas(64) float dots[32 * 32];
  __m512 sums[32];
  for (auto& s : sums) s = _mm512_setzero_ps();
  before_tile_loads();
  for (int64_t h = 0; h < p.heads; h += 32) {
    dot_tiles(p, h, a, b, key_stride, dots);
    __m512 w0 = _mm512_loadu_ps(p.w + h), w1 = _mm512_loadu_ps(p.w + h + 16);
    for (int k = 0; k < 32; ++k) {
      __m512 x = weigh<Avx512>(_mm512_load_ps(dots + k * 32), w0, round);
      __m512 y = weigh<Avx512>(_mm512_load_ps(dots + k * 32 + 16), w1, round);
      sums[k] = _mm512_add_ps(sums[k], _mm512_add_ps(x, y));
    }
  }
  for (int k = 0; k < 32; k += 16) {
    __m512 s = Avx512::sum_lanes16(sums + k);
    _mm512_storeu_ps(scores + k, round ? Avx512::round_bf16(s) : s);
  }
}

void pack(const BF16* q, int64_t q_stride, int64_t heads, int64_t d, int64_t padded_heads,
          int64_t pairs, uint32_t* out) {
  for (int64_t h = 0; h < padded_heads; h += 16)
    pack_pairs16(q + (h < heads ? h : 0) * q_stride, q_stride, heads - h, d, pairs, out + h,
                 padded_heads);
}

}  // namespace
}  // namespace hadal

HADAL_TARGET_END

namespace hadal {
namespace {

struct AmxQueries {};
struct AmxKeys {};

// 16 keys from j on as one block of rows: where they lie, or copied to `buffer` (zero padded).
const BF16* sixteen_keys(const IndexScore& s, int64_t sequence, int64_t j, int64_t end,
                         int64_t width, BF16* buffer) {
  int64_t d = s.q.shape[2], count = std::min<int64_t>(16, end - j);
  bool in_place = count == 16 && width == d && j % s.table.page_size + 16 <= s.table.page_size &&
                  s.keys.stride[1] == d;
  if (in_place) return entry<const BF16>(s.keys, s.table, sequence, j);
  std::fill(buffer, buffer + 16 * width, BF16{0});
  for (int64_t k = 0; k < count; ++k) {
    const BF16* key = entry<const BF16>(s.keys, s.table, sequence, j + k);
    std::copy(key, key + d, buffer + k * width);
  }
  return buffer;
}

}  // namespace

void amx_index_score(Context& ctx, const Batch& batch, const IndexScore& s) {
  if (s.q.dtype != DType::kBF16) return avx512_index_score(ctx, batch, s);
  check_index(batch, s);
  int64_t d = s.q.shape[2], heads = (s.q.shape[1] + 31) / 32 * 32, pairs = (d + 31) / 32 * 16;
  int64_t width = 2 * pairs;
  thread_local PackedQueries row;
  for_index_blocks(
      ctx, batch, s,
      [&](int64_t t) {
        uint32_t* q = scratch<uint32_t, AmxQueries>(pairs * heads);
        pack(s.q.at<const BF16>(t), s.q.stride[1], s.q.shape[1], d, heads, pairs, q);
        row = {q, padded_weights(s, t, heads), heads, pairs};
      },
      [&](int64_t i, int64_t t, int64_t begin, int64_t end) {
        TileScope tiles;
        BF16* buffer = scratch<BF16, AmxKeys>(2 * 16 * width);
        float* out = s.scores.at<float>(i);
        for (int64_t j = begin; j < end; j += 32) {
          const BF16* a = sixteen_keys(s, batch.sequence[t], j, end, width, buffer);
          const BF16* b =
              sixteen_keys(s, batch.sequence[t], j + 16, end, width, buffer + 16 * width);
          float scores[32];
          score32(row, s.round_bf16, a, b, width, scores);
          std::copy(scores, scores + std::min<int64_t>(32, end - j), out + j);
        }
      });
}

}  // namespace hadal
