// Lightning-indexer scores: a block takes one row and 32 keys; keys lie in shared memory, queries
// pass through it 16 heads at a time; 8 threads per key share the heads and are added in order.
// Portable GPU kernels (kl.h); contract in kernels/index_score.h.
#pragma once

#include "kernels/gpu/index_args.cu.h"
#include "kernels/gpu/kl.h"
#include "kernels/gpu/launchers.h"

namespace hadal::KL_TARGET {

inline constexpr int kIndexThreads = 256;
inline constexpr int kIndexKeys = 32;
inline constexpr int kIndexParts = kIndexThreads / kIndexKeys;  // threads per key
inline constexpr int kIndexHeads = 16;                          // queries in shared memory

// Scores of heads [head, head + n) for this thread's key, added to `sum`.
template <class T>
KL_DEVICE void index_heads(const IndexArgs<T>& a, int64_t t, int64_t head, int n, const float* keys,
                           const float* queries, float& sum) {
  int key = kl::thread() % kIndexKeys, part = kl::thread() / kIndexKeys;
  for (int h = part; h < n; h += kIndexParts) {
    float dot = 0, weight = *a.weights.at(t, head + h);
    for (int64_t d = 0; d < a.width; ++d)
      dot += queries[h * a.width + d] * keys[key * (a.width + 1) + d];
    if (a.round) dot = round_bf16(dot);
    float term = (dot > 0 ? dot : dot != dot ? dot : 0.0f) * weight;
    sum += a.round ? round_bf16(term) : term;
  }
}

// limits: vgprs 64, lds 1024
template <class T>
KL_KERNEL(kIndexThreads)
index_score_kernel(IndexArgs<T> a) {
  KL_DYNAMIC_SHARED(float, keys);  // [32][D + 1], then queries [16][D]
  KL_SHARED(float, part, [kIndexThreads]);
  float* queries = keys + kIndexKeys * (a.width + 1);
  int64_t tiles = (a.columns + kIndexKeys - 1) / kIndexKeys;
  for (int64_t n = kl::block(); n < a.rows * tiles; n += kl::blocks()) {
    int64_t i = n / tiles, t = a.row0 + i, first = n % tiles * kIndexKeys;
    int64_t visible = (a.batch.positions[t] + 1) / a.ratio;
    if (visible > a.columns) visible = a.columns;
    if (first >= visible) continue;  // the same for the whole block
    int64_t s = a.batch.sequence[t];
    int width = static_cast<int>(a.width);  // 32-bit arithmetic: a division per number
    for (int m = kl::thread(); m < kIndexKeys * width; m += kl::threads()) {
      int key = m / width, d = m % width;
      bool inside = first + key < visible;
      keys[key * (width + 1) + d] =
          inside ? load(entry_address(a.keys, a.table, s, first + key)[d]) : 0.0f;
    }
    float sum = 0;
    for (int64_t head = 0; head < a.heads; head += kIndexHeads) {
      int count = static_cast<int>(a.heads - head < kIndexHeads ? a.heads - head : kIndexHeads);
      for (int m = kl::thread(); m < count * width; m += kl::threads())
        queries[m] = load(*a.q.at(t, head + m / width, m % width));
      kl::sync();
      index_heads(a, t, head, count, keys, queries, sum);
      kl::sync();  // the next heads, or the next keys, overwrite what was read
    }
    part[kl::thread()] = sum;
    kl::sync();
    if (kl::thread() < kIndexKeys && first + kl::thread() < visible) {
      float total = 0;
      for (int p = 0; p < kIndexParts; ++p) total += part[p * kIndexKeys + kl::thread()];
      *a.scores.at(i, first + kl::thread()) = a.round ? round_bf16(total) : total;
    }
    kl::sync();  // the next tile overwrites the parts
  }
}

struct IndexWeightsArgs {
  AnyVector raw;
  int64_t pitch, rows, heads;
  View<float> out;
  float scale;
  bool round;
};

// limits: vgprs 64, lds 0
KL_KERNEL(kIndexThreads) index_weights_kernel(IndexWeightsArgs a) {
  int64_t step = kl::blocks() * kl::threads();
  for (int64_t n = kl::block() * kl::threads() + kl::thread(); n < a.rows * a.heads; n += step) {
    int64_t t = n / a.heads, h = n % a.heads;
    float v = a.raw[t * a.pitch + h] * a.scale;
    *a.out.at(t, h) = a.round ? round_bf16(v) : v;
  }
}

void index_weights(GpuStream s, const Tensor& raw, float scale, bool to_bf16, const Tensor& out) {
  expect_shape("index_weights", "out", out, {raw.shape[0], raw.shape[1]});
  int64_t blocks = (raw.size() + kIndexThreads - 1) / kIndexThreads;
  kl::launch(index_weights_kernel, {kl::grid(s, blocks)}, kIndexThreads, 0, s,
             IndexWeightsArgs{any_vector(raw), raw.stride[0], raw.shape[0], raw.shape[1],
                              view<float>(out), scale, to_bf16});
}

void index_score(GpuStream s, const Batch& batch, const IndexScore& a) {
  check_index_score(batch, a);
  int64_t shared = (kIndexKeys * (a.q.shape[2] + 1) + kIndexHeads * a.q.shape[2]) * 4;
  HADAL_CHECK(shared <= 46 << 10, "[index_score] q " + a.q.describe());
  with_activation("index_score", a.q.dtype, [&](auto type) {
    using T = decltype(type);
    IndexArgs<T> args = index_args<T>(batch, a);
    int64_t tiles = (args.columns + kIndexKeys - 1) / kIndexKeys;
    kl::launch(index_score_kernel<T>, {kl::grid(s, a.rows * tiles)}, kIndexThreads, shared, s,
               args);
  });
}

}  // namespace hadal::KL_TARGET
