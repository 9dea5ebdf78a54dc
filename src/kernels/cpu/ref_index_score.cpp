// Reference of the lightning-indexer scores.
#include "kernels/cpu/ref_index_score.h"

#include "kernels/cpu/index_range.h"

namespace hadal {
namespace {

template <class T>
float score_key(const Tensor& q, const float* w, int64_t t, const T* key, bool round) {
  int64_t heads = q.shape[1], d = q.shape[2];
  if (!round) {
    double sum = 0;
    for (int64_t h = 0; h < heads; ++h)
      sum += std::max(0.0, dot_double(q.at<const T>(t, h), key, d)) * w[h];
    return static_cast<float>(sum);
  }
  float sum = 0;
  for (int64_t h = 0; h < heads; ++h) {
    float dot = round_bf16(static_cast<float>(dot_double(q.at<const T>(t, h), key, d)));
    sum += round_bf16(std::max(0.0f, dot) * w[h]);
  }
  return round_bf16(sum);
}

}  // namespace

void ref_index_score(Context& ctx, const Batch& batch, const IndexScore& s) {
  check_index(batch, s);
  with_activation("index_score", s.q.dtype, [&](auto type) {
    using T = decltype(type);
    auto score = [&](int64_t i, int64_t t, int64_t begin, int64_t end) {
      float* out = s.scores.at<float>(i);
      const float* w = s.weights.at<const float>(t);
      for (int64_t j = begin; j < end; ++j)
        out[j] = score_key(s.q, w, t, entry<const T>(s.keys, s.table, batch.sequence[t], j),
                           s.round_bf16);
    };
    for_index_blocks(
        ctx, batch, s, [](int64_t) {}, score);
  });
}

}  // namespace hadal
