// Attention over a list of keys in blocks, with a running maximum (online softmax): the flow that
// the tuned candidates share. An instruction set I supplies the loops over a block:
//
//   I::scores(q, q_stride, heads, keys, n, d, scale, s)     s[h][k] = scale * (q_h . key_k)
//   I::largest(s, n)           max of s[0, n)
//   I::softmax<T>(s, n, top)   s[k] <- exp(s[k] - top) as T keeps it, 0 past n; returns the
//                              unrounded sum
//   I::values(keys, n, s, dv, factor, acc)   acc[h] <- acc[h] * factor[h] + sum_k s[h][k] key_k,
//                                            for the kHeads heads of a block of heads
//   I::write(acc, den, dv, out)   out = acc / den
//
// A head's result depends on its list alone: neither on the heads beside it nor on the threads.
#pragma once

#include <limits>

#include "kernels/cpu/attn_keys.h"

namespace hadal {

inline constexpr int64_t kKeyBlock = 128;  // keys scored together: 128 KB of a V4 layer, in L2
inline constexpr int64_t kHeads = 8;       // heads that share the load of a key

struct FlowScratch {};

// Columns of an accumulator row.
inline int64_t padded(int64_t dv) { return (dv + 31) / 32 * 32; }

// Heads [0, heads) of one row. sink: one logit per head, or null.
template <class I, class T>
void attend(const T* q, int64_t q_stride, int64_t heads, KeyList<T> list, int64_t d, int64_t dv,
            float scale, const float* sink, T* out, int64_t out_stride) {
  const int64_t blocks = (heads + kHeads - 1) / kHeads, all = blocks * kHeads, width = padded(dv);
  float* acc = scratch<float, FlowScratch>(all * (width + kKeyBlock + 3));
  float *s = acc + all * width, *top = s + all * kKeyBlock, *den = top + all, *factor = den + all;
  std::fill(acc, s, 0.0f);
  for (int64_t h = 0; h < all; ++h) {
    top[h] = sink && h < heads ? sink[h] : -std::numeric_limits<float>::infinity();
    den[h] = std::isinf(top[h]) ? 0.0f : 1.0f;
  }
  for (int64_t first = 0; first < list.size; first += kKeyBlock) {
    const T* const* keys = list.keys + first;
    int64_t n = std::min(kKeyBlock, list.size - first);
    I::scores(q, q_stride, heads, keys, n, d, scale, s);
    for (int64_t h = 0; h < heads; ++h) {
      float highest = std::max(top[h], I::largest(s + h * kKeyBlock, n));
      factor[h] = I::exp(top[h] - highest);
      den[h] = den[h] * factor[h] + I::template softmax<T>(s + h * kKeyBlock, n, highest);
      top[h] = highest;
    }
    // Heads of the last block that do not exist: no weights, no accumulation.
    std::fill(s + heads * kKeyBlock, s + all * kKeyBlock, 0.0f);
    std::fill(factor + heads, factor + all, 0.0f);
    for (int64_t b = 0; b < all; b += kHeads)
      I::values(keys, n, s + b * kKeyBlock, dv, factor + b, acc + b * width);
  }
  for (int64_t h = 0; h < heads; ++h)
    I::write(acc + h * width, den[h] > 0 ? den[h] : 1.0f, dv, out + h * out_stride);
}

// Spreads rows and, where rows are few, groups of heads (multiples of `block`) over the threads:
// f(row, first, last head). Pieces go to threads in turn, because later rows of a prompt see more
// keys.
template <class F>
void for_row_heads(Context& ctx, int64_t rows, int64_t heads, int64_t block, F&& f) {
  if (rows == 0) return;
  int64_t threads = ctx.threads.size(), blocks = (heads + block - 1) / block;
  int64_t cuts = rows >= 4 * threads ? 1 : std::min(blocks, (threads + rows - 1) / rows);
  int64_t per_cut = (blocks + cuts - 1) / cuts * block, pieces = rows * cuts;
  ctx.threads.run(std::min(threads, pieces), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t share = begin; share < end; ++share)
      for (int64_t i = share; i < pieces; i += std::min(threads, pieces)) {
        int64_t first = i % cuts * per_cut, last = std::min(heads, first + per_cut);
        if (first < last) f(i / cuts, first, last);
      }
  });
}

template <class I>
void flow_sparse(Context& ctx, const Batch& batch, const SparseAttention& a) {
  check_sparse(batch, a);
  int64_t heads = a.q.shape[1], d = a.q.shape[2];
  with_activation("sparse_attention", a.q.dtype, [&](auto type) {
    using T = decltype(type);
    for_row_heads(ctx, batch.rows, heads, kHeads, [&](int64_t t, int64_t first, int64_t last) {
      attend<I, T>(a.q.at<const T>(t, first), a.q.stride[1], last - first,
                   sparse_keys<T>(batch, a, t), d, d, a.scale, a.sink.at<const float>(first),
                   a.out.at<T>(t, first), a.out.stride[1]);
    });
  });
}

template <class I>
void flow_mla(Context& ctx, const Batch& batch, const MlaAttention& a) {
  check_mla(batch, a);
  int64_t heads = a.q.shape[1], d = a.q.shape[2], dv = a.out.shape[2];
  with_activation("mla_attention", a.q.dtype, [&](auto type) {
    using T = decltype(type);
    for_row_heads(ctx, batch.rows, heads, kHeads, [&](int64_t t, int64_t first, int64_t last) {
      attend<I, T>(a.q.at<const T>(t, first), a.q.stride[1], last - first, mla_keys<T>(batch, a, t),
                   d, dv, a.scale, nullptr, a.out.at<T>(t, first), a.out.stride[1]);
    });
  });
}

}  // namespace hadal
