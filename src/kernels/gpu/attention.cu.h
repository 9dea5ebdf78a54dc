// Attention over one shared key head, both kinds: MLA over the latent cache and V4's window plus
// compressed entries plus sink. A block takes one row and 8 heads, and walks over the keys 8 at a
// time with a running maximum, so a row's result depends on nothing but its keys and their order.
// Any number of heads. Portable GPU kernels (kl.h); contracts in kernels/attn_mla.h, attn_sparse.h.
#pragma once

#include "kernels/gpu/attention_keys.cu.h"
#include "kernels/gpu/kl.h"
#include "kernels/gpu/launchers.h"

namespace hadal::KL_TARGET {

inline constexpr int kAttentionThreads = 256;
inline constexpr int kAttentionHeads = 8;
inline constexpr int kAttentionKeys = 8;
inline constexpr int kAttentionParts = 4;    // threads per dot product
inline constexpr int kAttentionColumns = 2;  // value columns per thread: values up to 512 wide

template <class T>
struct AttentionTile {
  const T* key[kAttentionKeys];  // null: none
  float score[kAttentionHeads][kAttentionKeys];
  float top[kAttentionHeads], sum[kAttentionHeads], shrink[kAttentionHeads];
};

// Loads 8 keys from key `base` on; absent ones as zeros.
template <class T>
KL_DEVICE void attention_load(const AttentionArgs<T>& a, const AttentionRange& r, int64_t t,
                              int64_t base, AttentionTile<T>& tile, float* keys) {
  if (kl::thread() < kAttentionKeys)
    tile.key[kl::thread()] = attention_key(a, r, t, base + kl::thread());
  kl::sync();
  int width = static_cast<int>(a.width);  // 32-bit arithmetic: a division per number
  for (int n = kl::thread(); n < kAttentionKeys * width; n += kl::threads()) {
    int key = n / width, d = n % width;
    const T* from = tile.key[key];
    keys[key * (width + 1) + d] = from ? load(from[d]) : 0.0f;
  }
  kl::sync();
}

// One score per group of four threads.
template <class T>
KL_DEVICE void attention_score(const AttentionArgs<T>& a, const float* queries, const float* keys,
                               AttentionTile<T>& tile) {
  int part = kl::thread() % kAttentionParts, pair = kl::thread() / kAttentionParts;
  int key = pair % kAttentionKeys, head = pair / kAttentionKeys;
  float dot = 0;
  for (int64_t d = part; d < a.width; d += kAttentionParts)
    dot += queries[head * a.width + d] * keys[key * (a.width + 1) + d];
  dot += kl::shfl_xor(dot, 1);
  dot += kl::shfl_xor(dot, 2);
  if (part == 0) tile.score[head][key] = tile.key[key] ? dot * a.scale : -kl::infinity();
  kl::sync();
}

// The running softmax: scores become probabilities against the new maximum, rounded to T.
template <class T>
KL_DEVICE void attention_softmax(AttentionTile<T>& tile) {
  int h = kl::thread();
  if (h < kAttentionHeads) {
    float top = tile.top[h];
    for (int k = 0; k < kAttentionKeys; ++k) top = kl::max_of(top, tile.score[h][k]);
    bool none = top == -kl::infinity();
    float shrink = none ? 1.0f : kl::exp_accurate(tile.top[h] - top), sum = tile.sum[h] * shrink;
    for (int k = 0; k < kAttentionKeys; ++k) {
      float p = none ? 0.0f : kl::exp_accurate(tile.score[h][k] - top);
      sum += p;
      tile.score[h][k] = rounded_to<T>(p);
    }
    tile.top[h] = top;
    tile.sum[h] = sum;
    tile.shrink[h] = shrink;
  }
  kl::sync();
}

// One row and the heads from head0 on.
template <class T>
KL_DEVICE void attention_row(const AttentionArgs<T>& a, int64_t t, int64_t head0, float* queries,
                             float* keys, AttentionTile<T>& tile) {
  int width = static_cast<int>(a.width);
  for (int n = kl::thread(); n < kAttentionHeads * width; n += kl::threads()) {
    int64_t h = head0 + n / width;
    queries[n] = h < a.heads ? load(*a.q.at(t, h, n % width)) : 0.0f;
  }
  if (kl::thread() < kAttentionHeads) {
    int64_t h = head0 + kl::thread();
    float sink = a.sink && h < a.heads ? a.sink[h] : -kl::infinity();
    tile.top[kl::thread()] = sink;
    tile.sum[kl::thread()] = sink == -kl::infinity() ? 0.0f : 1.0f;
  }
  float value[kAttentionHeads][kAttentionColumns] = {};
  AttentionRange r = attention_range(a, t);
  for (int64_t base = 0; base < r.count; base += kAttentionKeys) {
    attention_load(a, r, t, base, tile, keys);
    attention_score(a, queries, keys, tile);
    attention_softmax(tile);
    KL_UNROLL
    for (int i = 0; i < kAttentionColumns; ++i) {
      int64_t c = kl::thread() + i * kAttentionThreads;
      if (c >= a.values) continue;
      KL_UNROLL
      for (int h = 0; h < kAttentionHeads; ++h) {
        float sum = value[h][i] * tile.shrink[h];
        for (int k = 0; k < kAttentionKeys; ++k)
          sum += tile.score[h][k] * keys[k * (a.width + 1) + c];
        value[h][i] = sum;
      }
    }
    kl::sync();  // the next keys overwrite these
  }
  if (r.count == 0) kl::sync();  // for the sums
  KL_UNROLL
  for (int h = 0; h < kAttentionHeads; ++h) {
    if (head0 + h >= a.heads) continue;
    float sum = tile.sum[h];
    KL_UNROLL
    for (int i = 0; i < kAttentionColumns; ++i) {
      int64_t c = kl::thread() + i * kAttentionThreads;
      if (c < a.values) store(*a.out.at(t, head0 + h, c), sum == 0 ? 0.0f : value[h][i] / sum);
    }
  }
  kl::sync();  // the next row overwrites the tile
}

// limits: vgprs 128, lds 512
template <class T>
KL_KERNEL(kAttentionThreads)
attention_kernel(AttentionArgs<T> a) {
  KL_DYNAMIC_SHARED(float, queries);  // [8][D], then keys [8][D + 1]
  KL_SHARED(AttentionTile<T>, tile, );
  int64_t groups = (a.heads + kAttentionHeads - 1) / kAttentionHeads;
  for (int64_t n = kl::block(); n < a.rows * groups; n += kl::blocks())
    attention_row(a, n / groups, n % groups * kAttentionHeads, queries,
                  queries + kAttentionHeads * a.width, tile);
}

template <class T>
void launch_attention(GpuStream s, const char* op, const AttentionArgs<T>& a) {
  int64_t shared = (kAttentionHeads * a.width + kAttentionKeys * (a.width + 1)) * 4;
  HADAL_CHECK(a.values <= kAttentionColumns * kAttentionThreads && shared <= 46 << 10,
              std::string("[") + op + "] keys of " + std::to_string(a.width) + " and values of " +
                  std::to_string(a.values) + " numbers");
  int64_t groups = (a.heads + kAttentionHeads - 1) / kAttentionHeads;
  kl::launch(attention_kernel<T>, {kl::grid(s, a.rows * groups)}, kAttentionThreads, shared, s, a);
}

void mla_attention(GpuStream s, const Batch& batch, const MlaAttention& m) {
  check_mla_attention(batch, m);
  with_activation("mla_attention", m.q.dtype, [&](auto type) {
    launch_attention(s, "mla_attention", attention_args<decltype(type)>(batch, m));
  });
}

void sparse_attention(GpuStream s, const Batch& batch, const SparseAttention& p) {
  check_sparse_attention(batch, p);
  with_activation("sparse_attention", p.q.dtype, [&](auto type) {
    launch_attention(s, "sparse_attention", attention_args<decltype(type)>(batch, p));
  });
}

}  // namespace hadal::KL_TARGET
