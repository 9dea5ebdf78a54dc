// AVX2 indexer scores: heads in lanes, fp32 copies of four keys.
#include "kernels/cpu/avx2_index_score.h"

#include "kernels/cpu/avx2_math.h"
#include "kernels/cpu/index_flow.h"

HADAL_TARGET_BEGIN(HADAL_TARGET_AVX2)

#include "kernels/cpu/index_tiles.h"

namespace hadal {
namespace {

template <class T>
void four_keys(const IndexRow<float>& row, bool round, const T* const* keys, float* copy,
               float* out) {
  for (int k = 0; k < kIndexKeys; ++k) widen_row<Avx2>(keys[k], row.depth, copy + k * row.depth);
  index_keys_fma<Avx2, 2, kIndexKeys>(row, round, copy, out);
}

}  // namespace
}  // namespace hadal

HADAL_TARGET_END

namespace hadal {

void avx2_index_score(Context& ctx, const Batch& batch, const IndexScore& s) {
  check_index(batch, s);
  int64_t depth = s.q.shape[2], heads = (s.q.shape[1] + 7) / 8 * 8;
  with_activation("index_score", s.q.dtype, [&](auto type) {
    using T = decltype(type);
    thread_local IndexRow<float> row;
    for_index_blocks(
        ctx, batch, s,
        [&](int64_t t) {
          row = {transposed_queries<T>(s, t, heads), padded_weights(s, t, heads), heads, depth};
        },
        [&](int64_t i, int64_t t, int64_t begin, int64_t end) {
          float* copy = scratch<float, IndexKeyCopy>(kIndexKeys * depth);
          for_four_keys<T>(s, batch.sequence[t], begin, end, s.scores.at<float>(i),
                           [&](const T* const* keys, float* out) {
                             four_keys(row, s.round_bf16, keys, copy, out);
                           });
        });
  });
}

}  // namespace hadal
