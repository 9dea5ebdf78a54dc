// The frame of the tuned indexer scores: transposing a row's queries, walking its keys four at a
// time. The arithmetic on four keys is the candidate's.
#pragma once

#include "kernels/cpu/index_range.h"

namespace hadal {

inline constexpr int kIndexKeys = 4;

struct IndexQueries {};
struct IndexWeights {};
struct IndexKeyCopy {};

// w [heads], padded with zeros to `padded_heads`.
inline float* padded_weights(const IndexScore& s, int64_t t, int64_t padded_heads) {
  float* w = scratch<float, IndexWeights>(padded_heads);
  const float* from = s.weights.at<const float>(t);
  std::fill(w, w + padded_heads, 0.0f);
  std::copy(from, from + s.q.shape[1], w);
  return w;
}

// q [depth, padded_heads] fp32 of row t.
template <class T>
float* transposed_queries(const IndexScore& s, int64_t t, int64_t padded_heads) {
  int64_t heads = s.q.shape[1], d = s.q.shape[2];
  float* q = scratch<float, IndexQueries>(d * padded_heads);
  std::fill(q, q + d * padded_heads, 0.0f);
  for (int64_t h = 0; h < heads; ++h) {
    const T* from = s.q.at<const T>(t, h);
    for (int64_t i = 0; i < d; ++i) q[i * padded_heads + h] = load(from[i]);
  }
  return q;
}

// Calls four(keys, out) for each four keys of [begin, end); the last group repeats its last key.
template <class T, class Four>
void for_four_keys(const IndexScore& s, int64_t sequence, int64_t begin, int64_t end, float* out,
                   Four&& four) {
  for (int64_t j = begin; j < end; j += kIndexKeys) {
    const T* keys[kIndexKeys];
    float scores[kIndexKeys];
    for (int64_t k = 0; k < kIndexKeys; ++k)
      keys[k] = entry<const T>(s.keys, s.table, sequence, std::min(j + k, end - 1));
    four(keys, scores);
    for (int64_t k = 0; k < std::min<int64_t>(kIndexKeys, end - j); ++k)
      out[j + k] = s.round_bf16 ? round_bf16(scores[k]) : scores[k];
  }
}

}  // namespace hadal
