// Attention for few rows, both kinds, with the keys of a row split over many blocks. The keys are
// cut into spans of 32; of M chunks (a function of the number of heads alone) chunk c takes spans
// c, c + M, c + 2M, ... A block takes one row, 8 heads and one chunk and leaves its values beside
// their maximum and sum; a second kernel adds the chunks of a row in order. Where a key goes
// depends on its place among the keys of its row alone, so neither the other rows, nor the grid,
// nor the longest possible row change a bit. The grid is made from what the host knows; chunks that
// the row's position does not reach leave at once, and the second kernel does not read what they
// would have written. Portable GPU kernels (kl.h); contracts in kernels/attn_mla.h, attn_sparse.h.
//
// Rounding differs from attention.cu.h: with bf16 activations a probability is rounded relative to
// the largest one so far in its chunk, not so far in its row. Sums of a chunk stay fp32.
//
// There are two ways to do the products: plain arithmetic from registers for any shape, and, for
// bf16 rows of whole vectors, 16 heads and 32 keys at a time on matrix units.
#pragma once

#include "kernels/gpu/attention_keys.cu.h"
#include "kernels/gpu/kl.h"
#include "kernels/gpu/launchers.h"
#include "kernels/gpu/vector16.cu.h"

namespace hadal::KL_TARGET {

inline constexpr int kSplitThreads = 256;
inline constexpr int kSplitHeads = 8;        // of a block
inline constexpr int kSplitSpan = 32;        // keys
inline constexpr int kSplitMaxValues = 512;  // numbers of a value
inline constexpr int kSplitChunks = 64;      // at most
inline constexpr int kSplitBlocks = 160;     // wanted for one row
inline constexpr int kCombineThreads = 128;
inline constexpr int kCombineAcross = 32;  // threads side by side, of four columns each
inline constexpr int kCombineParts = kCombineThreads / kCombineAcross;  // share the chunks

// Keys that a block holds at once: 8 heads and these are 46 KiB at 576 numbers each.
template <class T>
inline constexpr int kSplitKeys = sizeof(T) == 2 ? 32 : 8;

// Who adds up the values: threads side by side over the columns, each with half of the heads, and
// how many such teams share the keys.
inline constexpr int kSplitHeld = kSplitHeads / 2;
template <class T>
inline constexpr int kSplitAcross = kSplitMaxValues / kPerVector<T>;
template <class T>
inline constexpr int kSplitParts = kSplitThreads / kSplitAcross<T> / 2;

template <class T>
struct AttentionSplitArgs {
  AttentionArgs<T> of;
  float* values;  // [rows, heads, chunks, padded]
  float* stats;   // [rows, heads, chunks, 2]: the maximum, and the sum relative to it
  int64_t padded;
  int groups, chunks, step;  // step: M above
  uint64_t reciprocal;       // of `vectors`: 2^32 / vectors, rounded up
  int vectors;               // of a key in shared memory, the last filled up with zeros
  bool whole;                // rows in memory are whole vectors too
};

template <class T>
struct AttentionSplitTile {
  Vector16 probability[kSplitKeys<T>][kSplitHeads / 4];  // four heads each
  float score[kSplitHeads][kSplitKeys<T>];
  float shrink[kSplitHeads];
  const T* key[kSplitKeys<T>];  // null: none
  int present;                  // keys that are not null
};

// What the threads of one head know of its scores.
struct AttentionSplitSums {
  float top, sum;
};

template <class T>
using AttentionSplitValues = float[kSplitHeld][kPerVector<T>];

template <class T>
struct AttentionSplitPlace {
  int column = kl::thread() % kSplitAcross<T>;  // in vectors
  int half = kl::thread() / kSplitAcross<T> % 2;
  int part = kl::thread() / kSplitAcross<T> / 2;
};

// Rows at(0), at(1), ... into shared memory, kGap vectors apart, a null one as zeros; kBatch loads
// of a thread are on their way together.
template <class T, int kBatch, int kGap = 0, class At>
KL_DEVICE void attention_split_copy(const AttentionSplitArgs<T>& a, int rows, Vector16* to,
                                    At&& at) {
  int total = rows * a.vectors;
  auto row_of = [&](int n) {
    return static_cast<int>(static_cast<uint32_t>(n) * a.reciprocal >> 32);
  };
  if (a.whole) {
    for (int n0 = kl::thread(); n0 < total; n0 += kBatch * kSplitThreads) {
      Vector16 got[kBatch];
      KL_UNROLL
      for (int i = 0; i < kBatch; ++i) {
        int n = n0 + i * kSplitThreads, row = row_of(n);
        const T* from = n < total ? at(row) : nullptr;
        got[i] = {};
        if (from) got[i] = vectors_at(from)[n - row * a.vectors];
      }
      KL_UNROLL
      for (int i = 0; i < kBatch; ++i) {
        int n = n0 + i * kSplitThreads;
        if (n < total) to[n + (kGap ? row_of(n) * kGap : 0)] = words_of(got[i]);
      }
    }
    return;
  }
  int pitch = a.vectors * kPerVector<T>, width = static_cast<int>(a.of.width);
  T* out = reinterpret_cast<T*>(to);
  for (int n = kl::thread(); n < rows * pitch; n += kSplitThreads) {
    const T* from = at(n / pitch);
    out[n + n / pitch * kGap * kPerVector<T>] = from && n % pitch < width ? from[n % pitch] : T{};
  }
}

// tile.score of all heads and keys: a warp takes four heads and eight keys, its lanes share the
// columns.
template <class T>
KL_DEVICE void attention_split_scores(const AttentionSplitArgs<T>& a, const Vector16* queries,
                                      const Vector16* keys, AttentionSplitTile<T>& tile) {
  constexpr int kHeads = 4, kKeys = 8, kItems = kSplitHeads / kHeads * kSplitKeys<T> / kKeys;
  const auto* query = reinterpret_cast<const FourOf<T>*>(queries);
  const auto* known = reinterpret_cast<const FourOf<T>*>(keys);
  int fours = a.vectors * kPerVector<T> / 4;
  KL_UNROLL_BY(1)
  for (int item = kl::warp(); item < kItems; item += kl::warps()) {
    int head = item % (kSplitHeads / kHeads) * kHeads, key = item / (kSplitHeads / kHeads) * kKeys;
    float sum[kHeads * kKeys] = {};
    KL_UNROLL_BY(1)
    for (int v = kl::lane(); v < fours; v += kl::warp_size()) {
      float q[kHeads][4];
      KL_UNROLL
      for (int h = 0; h < kHeads; ++h) unpack(query[(head + h) * fours + v], q[h]);
      KL_UNROLL
      for (int k = 0; k < kKeys; ++k) {
        float x[4];
        unpack(known[(key + k) * fours + v], x);
        KL_UNROLL
        for (int h = 0; h < kHeads; ++h) {
          KL_UNROLL
          for (int d = 0; d < 4; ++d) sum[h * kKeys + k] += q[h][d] * x[d];
        }
      }
    }
    float total = kl::warp_sums(sum);
    int lane = kl::lane();  // the upper half of a wide warp repeats the sums
    if (lane < kHeads * kKeys) tile.score[head + lane / kKeys][key + lane % kKeys] = total;
  }
  kl::sync();
}

// Scores become probabilities relative to the maximum so far, rounded to T. One thread for each,
// the threads of a head side by side in a warp.
template <class T>
KL_DEVICE void attention_split_softmax(const AttentionSplitArgs<T>& a, AttentionSplitTile<T>& tile,
                                       AttentionSplitSums& sums) {
  int head = kl::thread() / kSplitKeys<T>, key = kl::thread() % kSplitKeys<T>;
  bool mine = head < kSplitHeads;
  float score = mine && tile.key[key] ? tile.score[head][key] * a.of.scale : -kl::infinity();
  float top = score;
  for (int m = kSplitKeys<T> / 2; m > 0; m /= 2) top = kl::max_of(top, kl::shfl_xor(top, m));
  top = kl::max_of(sums.top, top);
  bool none = top == -kl::infinity();
  float shrink = none ? 1.0f : kl::exp_accurate(sums.top - top);
  float p = none ? 0.0f : kl::exp_accurate(score - top), sum = p;
  for (int m = kSplitKeys<T> / 2; m > 0; m /= 2) sum += kl::shfl_xor(sum, m);
  sums = {top, sums.sum * shrink + sum};
  if (mine) {
    tile.probability[key][head / 4].word[head % 4] = std::bit_cast<uint32_t>(rounded_to<T>(p));
    if (key == 0) tile.shrink[head] = shrink;
  }
  kl::sync();
}

// Adds probability times value of this thread's columns and heads, over its part of the keys.
template <class T>
KL_DEVICE void attention_split_add(const AttentionSplitArgs<T>& a, const Vector16* keys,
                                   const AttentionSplitTile<T>& tile,
                                   AttentionSplitValues<T>& value) {
  AttentionSplitPlace<T> at;
  if (at.column * kPerVector<T> >= a.of.values) return;
  KL_UNROLL
  for (int h = 0; h < kSplitHeld; ++h) {
    float shrink = tile.shrink[at.half * kSplitHeld + h];
    KL_UNROLL
    for (int c = 0; c < kPerVector<T>; ++c) value[h][c] *= shrink;
  }
  KL_UNROLL_BY(2)
  for (int k = at.part; k < kSplitKeys<T>; k += kSplitParts<T>) {
    float x[kPerVector<T>], p[kSplitHeld];
    unpack(keys[k * a.vectors + at.column], x);
    unpack(tile.probability[k][at.half], p);
    KL_UNROLL
    for (int h = 0; h < kSplitHeld; ++h) {
      KL_UNROLL
      for (int c = 0; c < kPerVector<T>; ++c) value[h][c] += p[h] * x[c];
    }
  }
}

// Adds the values of two parts of the keys: they swap half of their heads, so that part 0 ends with
// the first two and part 1 with the last two, in value[0] and value[1]. `buffer` has room for half
// of the heads: it may be the keys, which are at least as wide.
template <class T>
KL_DEVICE void attention_split_fold(int columns, Vector16* buffer, AttentionSplitValues<T>& value) {
  constexpr int kHalf = kSplitHeld / 2, kWide = kPerVector<T> / 4, kTeams = 2 * kSplitParts<T>;
  AttentionSplitPlace<T> at;
  int team = at.part * 2 + at.half, other = team ^ 2;
  KL_UNROLL
  for (int h = 0; h < kHalf; ++h) {
    KL_UNROLL
    for (int w = 0; w < kWide; ++w) {
      float give[4];
      KL_UNROLL
      for (int c = 0; c < 4; ++c) {
        float low = value[h][w * 4 + c], high = value[h + kHalf][w * 4 + c];
        give[c] = at.part ? low : high;
        value[h][w * 4 + c] = at.part ? high : low;
      }
      if (at.column < columns)
        buffer[((h * kWide + w) * kTeams + team) * columns + at.column] = pack(give);
    }
  }
  kl::sync();
  KL_UNROLL
  for (int h = 0; h < kHalf; ++h) {
    KL_UNROLL
    for (int w = 0; w < kWide; ++w) {
      if (at.column >= columns) continue;
      float got[4];
      unpack(buffer[((h * kWide + w) * kTeams + other) * columns + at.column], got);
      KL_UNROLL
      for (int c = 0; c < 4; ++c) value[h][w * 4 + c] += got[c];
    }
  }
  kl::sync();  // the next chunk overwrites the buffer
}

// The first key of tile n of the chunk.
template <class T>
KL_DEVICE int attention_split_first(const AttentionSplitArgs<T>& a, int chunk, int n) {
  constexpr int kTiles = kSplitSpan / kSplitKeys<T>;
  return (chunk + n / kTiles * a.step) * kSplitSpan + n % kTiles * kSplitKeys<T>;
}

// One row, heads from head0 on, one chunk.
template <class T>
KL_DEVICE void attention_split_chunk(const AttentionSplitArgs<T>& a, int64_t t, int64_t head0,
                                     int chunk, Vector16* queries, Vector16* keys,
                                     AttentionSplitTile<T>& tile) {
  AttentionRange r = attention_range(a.of, t);
  if (chunk * kSplitSpan >= r.count) return;  // the same for the whole block
  bool finds = kl::thread() < kSplitKeys<T>;
  const T* next = finds ? attention_key(a.of, r, t, chunk * kSplitSpan + kl::thread()) : nullptr;
  attention_split_copy<T, 3>(a, kSplitHeads, queries, [&](int h) -> const T* {
    return head0 + h < a.of.heads ? a.of.q.at(t, head0 + h) : nullptr;
  });
  AttentionSplitValues<T> value = {};
  AttentionSplitSums sums = {-kl::infinity(), 0.0f};
  int first = 0;
  KL_UNROLL_BY(1)
  for (int n = 0; (first = attention_split_first(a, chunk, n)) < r.count; ++n) {
    if (finds) tile.key[kl::thread()] = next;
    if (kl::warp() == 0) {
      int present = kl::count_bits(kl::ballot(next != nullptr));
      if (kl::thread() == 0) tile.present = present;
    }
    kl::sync();
    if (finds)
      next = attention_key(a.of, r, t, attention_split_first(a, chunk, n + 1) + kl::thread());
    if (tile.present > 0) {  // the same for the whole block
      attention_split_copy<T, 9>(a, kSplitKeys<T>, keys, [&](int k) { return tile.key[k]; });
      kl::sync();
      attention_split_scores(a, queries, keys, tile);
      attention_split_softmax(a, tile, sums);
      attention_split_add(a, keys, tile, value);
    }
    kl::sync();  // the next tile overwrites this one
  }
  constexpr int kLeft = kSplitHeld / kSplitParts<T>;  // heads that this thread ends with
  static_assert(kSplitParts<T> <= 2);
  int columns = static_cast<int>((a.of.values + kPerVector<T> - 1) / kPerVector<T>);
  if constexpr (kSplitParts<T> == 2) attention_split_fold<T>(columns, keys, value);
  AttentionSplitPlace<T> at;
  int64_t c0 = at.column * kPerVector<T>;
  KL_UNROLL
  for (int h = 0; h < kLeft; ++h) {
    int64_t head = head0 + at.half * kSplitHeld + at.part * kLeft + h;
    if (head >= a.of.heads) continue;
    float* to = a.values + ((t * a.of.heads + head) * a.chunks + chunk) * a.padded;
    KL_UNROLL
    for (int c = 0; c < kPerVector<T>; c += 4)
      if (c0 + c < a.padded) *vectors_at(to + c0 + c) = pack(&value[h][c]);
  }
  int64_t head = head0 + kl::thread() / kSplitKeys<T>;
  if (kl::thread() % kSplitKeys<T> == 0 && kl::thread() / kSplitKeys<T> < kSplitHeads &&
      head < a.of.heads) {
    float* to = a.stats + ((t * a.of.heads + head) * a.chunks + chunk) * 2;
    to[0] = sums.top;
    to[1] = sums.sum;
  }
}

// limits: vgprs 192, lds 2560
template <class T>
KL_KERNEL(kSplitThreads, 2)
attention_split_kernel(AttentionSplitArgs<T> a) {
  KL_DYNAMIC_SHARED(Vector16, queries);  // [8][vectors], then keys [kSplitKeys][vectors]
  KL_SHARED(AttentionSplitTile<T>, tile, );
  int all = static_cast<int>(a.of.rows) * a.groups * a.chunks;
  int step = static_cast<int>(kl::blocks());
  // Blocks of the same keys are neighbours.
  for (int n = static_cast<int>(kl::block()); n < all; n += step) {
    int group = n % a.groups, rest = n / a.groups;
    attention_split_chunk(a, rest / a.chunks, int64_t{group} * kSplitHeads, rest % a.chunks,
                          queries, queries + kSplitHeads * a.vectors, tile);
  }
}

// --- The same with products of matrices, for bf16: a block takes 16 heads.

inline constexpr int kMatrixHeads = 16;
inline constexpr int kMatrixGap = 1;    // vectors between rows in shared memory: other banks
inline constexpr int kMatrixTiles = 8;  // of eight columns of the values, for each 32 lanes

struct AttentionMatrixTile {
  float score[2][kMatrixHeads][kSplitSpan + 4];            // of each half of the columns
  uint32_t probability[kMatrixHeads][kSplitSpan / 2 + 4];  // bf16 of two keys each
  float shrink[kMatrixHeads];
  const BF16* key[kSplitSpan];  // null: none
  int present;                  // keys that are not null
};

// Which rows and columns of a product these 32 lanes and this lane hold (kl::multiply_bf16).
struct AttentionMatrixPlace {
  int team = kl::thread() / 32, g = kl::thread() % 32 / 4, t = kl::thread() % 4;
};

// Both halves of the scores: a team takes eight keys and half of the columns.
KL_DEVICE void attention_matrix_scores(int vectors, const Vector16* queries, const Vector16* keys,
                                       AttentionMatrixTile& tile) {
  AttentionMatrixPlace at;
  int key = at.team % 4 * 8, half = at.team / 4, pitch = (vectors + kMatrixGap) * 4;
  int steps = vectors / 2, begin = half ? (steps + 1) / 2 : 0;  // of 16 columns
  int end = half ? steps : (steps + 1) / 2;
  const auto* q = reinterpret_cast<const uint32_t*>(queries) + at.g * pitch + at.t;
  const auto* k = reinterpret_cast<const uint32_t*>(keys) + (key + at.g) * pitch + at.t;
  float even[4] = {}, odd[4] = {};
  KL_UNROLL_BY(1)
  for (int s = begin; s < end; s += 4) {
    KL_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (s + i >= end) continue;
      int c = (s + i) * 8;
      uint32_t a[4] = {q[c], q[c + 8 * pitch], q[c + 4], q[c + 8 * pitch + 4]};
      uint32_t b[2] = {k[c], k[c + 4]};
      kl::multiply_bf16(i % 2 ? odd : even, a, b);
    }
  }
  KL_UNROLL
  for (int i = 0; i < 4; ++i)
    tile.score[half][at.g + i / 2 * 8][key + at.t * 2 + i % 2] = even[i] + odd[i];
  kl::sync();
}

// As attention_split_softmax: 16 threads for each head, two neighbouring keys each.
KL_DEVICE void attention_matrix_softmax(float scale, AttentionMatrixTile& tile,
                                        AttentionSplitSums& sums) {
  int head = kl::thread() / 16, pair = kl::thread() % 16;
  float score[2], p[2], top = sums.top;
  KL_UNROLL
  for (int i = 0; i < 2; ++i) {
    int key = pair * 2 + i;
    float sum = tile.score[0][head][key] + tile.score[1][head][key];
    score[i] = tile.key[key] ? sum * scale : -kl::infinity();
    top = kl::max_of(top, score[i]);
  }
  for (int m = 8; m > 0; m /= 2) top = kl::max_of(top, kl::shfl_xor(top, m));
  bool none = top == -kl::infinity();
  float shrink = none ? 1.0f : kl::exp_accurate(sums.top - top);
  KL_UNROLL
  for (int i = 0; i < 2; ++i) p[i] = none ? 0.0f : kl::exp_accurate(score[i] - top);
  float sum = p[0] + p[1];
  for (int m = 8; m > 0; m /= 2) sum += kl::shfl_xor(sum, m);
  sums = {top, sums.sum * shrink + sum};
  tile.probability[head][pair] = f32_to_bf16(p[0]).bits | uint32_t{f32_to_bf16(p[1]).bits} << 16;
  if (pair == 0) tile.shrink[head] = shrink;
  kl::sync();
}

// Adds probability times value: a team takes 64 columns.
KL_DEVICE void attention_matrix_add(int values, int vectors, const Vector16* keys,
                                    const AttentionMatrixTile& tile,
                                    float (&value)[kMatrixTiles][4]) {
  AttentionMatrixPlace at;
  int pitch = (vectors + kMatrixGap) * 8;
  const auto* v = reinterpret_cast<const HalfWord*>(keys) + at.t * 2 * pitch + at.g;
  float low = tile.shrink[at.g], high = tile.shrink[at.g + 8];
  uint32_t a[2][4];
  KL_UNROLL
  for (int s = 0; s < 2; ++s) {
    KL_UNROLL
    for (int i = 0; i < 4; ++i)
      a[s][i] = tile.probability[at.g + i % 2 * 8][s * 8 + at.t + i / 2 * 4];
  }
  KL_UNROLL
  for (int n = 0; n < kMatrixTiles; ++n) {
    int column = (at.team * kMatrixTiles + n) * 8;
    if (column >= values) column = 0;  // for nothing: a wide warp goes on as a whole
    KL_UNROLL
    for (int i = 0; i < 4; ++i) value[n][i] *= i < 2 ? low : high;
    KL_UNROLL
    for (int s = 0; s < 2; ++s) {
      uint32_t b[2];
      KL_UNROLL
      for (int i = 0; i < 2; ++i) {
        const HalfWord* from = v + (s * 16 + i * 8) * pitch + column;
        b[i] = from[0].bits | uint32_t{from[pitch].bits} << 16;
      }
      kl::multiply_bf16(value[n], a[s], b);
    }
  }
}

// One row, heads from head0 on, one chunk.
KL_DEVICE void attention_matrix_chunk(const AttentionSplitArgs<BF16>& a, int64_t t, int64_t head0,
                                      int chunk, Vector16* queries, Vector16* keys,
                                      AttentionMatrixTile& tile) {
  AttentionRange r = attention_range(a.of, t);
  if (chunk * kSplitSpan >= r.count) return;  // the same for the whole block
  bool finds = kl::thread() < kSplitSpan;
  const BF16* next = finds ? attention_key(a.of, r, t, chunk * kSplitSpan + kl::thread()) : nullptr;
  attention_split_copy<BF16, 5, kMatrixGap>(a, kMatrixHeads, queries, [&](int h) -> const BF16* {
    return head0 + h < a.of.heads ? a.of.q.at(t, head0 + h) : nullptr;
  });
  int values = static_cast<int>(a.of.values);
  float value[kMatrixTiles][4] = {};
  AttentionSplitSums sums = {-kl::infinity(), 0.0f};
  KL_UNROLL_BY(1)
  for (int span = chunk; span * kSplitSpan < r.count; span += a.step) {
    if (finds) tile.key[kl::thread()] = next;
    if (kl::warp() == 0) {
      int present = kl::count_bits(kl::ballot(next != nullptr));
      if (kl::thread() == 0) tile.present = present;
    }
    kl::sync();
    if (finds) next = attention_key(a.of, r, t, (span + a.step) * kSplitSpan + kl::thread());
    if (tile.present > 0) {  // the same for the whole block
      attention_split_copy<BF16, 9, kMatrixGap>(a, kSplitSpan, keys,
                                                [&](int k) { return tile.key[k]; });
      kl::sync();
      attention_matrix_scores(a.vectors, queries, keys, tile);
      attention_matrix_softmax(a.of.scale, tile, sums);
      attention_matrix_add(values, a.vectors, keys, tile, value);
    }
    kl::sync();  // the next tile overwrites this one
  }
  AttentionMatrixPlace at;
  KL_UNROLL
  for (int i = 0; i < 2; ++i) {
    int64_t head = head0 + at.g + i * 8;
    if (head >= a.of.heads) continue;
    float* to = a.values + ((t * a.of.heads + head) * a.chunks + chunk) * a.padded + at.t * 2;
    KL_UNROLL
    for (int n = 0; n < kMatrixTiles; ++n) {
      int column = (at.team * kMatrixTiles + n) * 8;
      if (column >= values) continue;
      to[column] = value[n][i * 2];
      to[column + 1] = value[n][i * 2 + 1];
    }
  }
  int64_t head = head0 + kl::thread() / 16;
  if (kl::thread() % 16 == 0 && head < a.of.heads) {
    float* to = a.stats + ((t * a.of.heads + head) * a.chunks + chunk) * 2;
    to[0] = sums.top;
    to[1] = sums.sum;
  }
}

// limits: vgprs 192, lds 8192
template <class T>
KL_KERNEL(kSplitThreads, 2)
attention_matrix_kernel(AttentionSplitArgs<T> a) {
  KL_DYNAMIC_SHARED(Vector16, queries);  // [16][vectors + 1], then keys [32][vectors + 1]
  KL_SHARED(AttentionMatrixTile, tile, );
  int groups = static_cast<int>((a.of.heads + kMatrixHeads - 1) / kMatrixHeads);
  int all = static_cast<int>(a.of.rows) * groups * a.chunks, step = static_cast<int>(kl::blocks());
  for (int n = static_cast<int>(kl::block()); n < all; n += step) {
    int group = n % groups, rest = n / groups;
    attention_matrix_chunk(a, rest / a.chunks, int64_t{group} * kMatrixHeads, rest % a.chunks,
                           queries, queries + kMatrixHeads * (a.vectors + kMatrixGap), tile);
  }
}

// --- Both kinds end here.

// Four columns of up to eight chunks of a thread's part, from chunk `first` on; absent ones as
// zeros.
KL_DEVICE void attention_combine_load(const float* values, int64_t padded, int first, int live,
                                      bool inside, Vector16 (&got)[8]) {
  KL_UNROLL
  for (int i = 0; i < 8; ++i) {
    int c = first + i * kCombineParts;
    got[i] = {};
    if (inside && c < live) got[i] = *vectors_at(values + c * padded);
  }
}

// The weight of each of `live` chunks into shared memory; returns the sum of all probabilities.
// Every warp comes to the same, the first one writes. Ends with a barrier.
KL_DEVICE float attention_combine_weights(const float* stats, int live, float sink, float* weight) {
  constexpr int kEach = kSplitChunks / 32;  // chunks of a lane
  float top[kEach], sum[kEach], most = sink, all = 0;
  KL_UNROLL
  for (int i = 0; i < kEach; ++i) {
    int c = kl::lane() + i * kl::warp_size();
    top[i] = c < live ? stats[2 * c] : -kl::infinity();
    sum[i] = c < live ? stats[2 * c + 1] : 0.0f;
    most = kl::max_of(most, top[i]);
  }
  most = kl::warp_max(most);
  bool none = most == -kl::infinity();
  KL_UNROLL
  for (int i = 0; i < kEach; ++i) {
    int c = kl::lane() + i * kl::warp_size();
    float w = none ? 0.0f : kl::exp_accurate(top[i] - most);
    all += w * sum[i];
    if (kl::warp() == 0 && c < live) weight[c] = w;
  }
  all = kl::warp_sum(all);
  kl::sync();
  return none ? 0.0f : all + kl::exp_accurate(sink - most);
}

// Adds the chunks of one row, head and 128 columns.
// limits: vgprs 128, lds 2560
template <class T>
KL_KERNEL(kCombineThreads)
attention_combine_kernel(AttentionSplitArgs<T> a) {
  KL_SHARED(float, weight, [kSplitChunks]);
  KL_SHARED(Vector16, shared, [kCombineThreads]);
  constexpr int kColumns = kCombineAcross * 4;
  int slices = static_cast<int>((a.padded + kColumns - 1) / kColumns);
  int heads = static_cast<int>(a.of.heads), step = static_cast<int>(kl::blocks());
  int all = static_cast<int>(a.of.rows) * heads * slices;
  int part = kl::thread() / kCombineAcross, across = kl::thread() % kCombineAcross;
  for (int n = static_cast<int>(kl::block()); n < all; n += step) {
    int row = n / slices;  // and head
    int64_t t = row / heads, head = row % heads;
    int64_t column = n % slices * kColumns + across * 4;
    AttentionRange r = attention_range(a.of, t);
    int spans = (r.count + kSplitSpan - 1) / kSplitSpan;
    int live = spans < a.chunks ? spans : a.chunks;
    const float* values = a.values + int64_t{row} * a.chunks * a.padded + column;
    int first = part;
    bool inside = column < a.padded;
    Vector16 got[8];
    attention_combine_load(values, a.padded, first, live, inside,
                           got);  // while the weights are made
    float sink = a.of.sink ? a.of.sink[head] : -kl::infinity();
    float sum =
        attention_combine_weights(a.stats + int64_t{row} * a.chunks * 2, live, sink, weight);
    float value[4] = {};
    for (int base = first; base < live;) {
      KL_UNROLL
      for (int i = 0; i < 8; ++i) {
        if (base + i * kCombineParts >= live) continue;
        float x[4], w = weight[base + i * kCombineParts];
        unpack(got[i], x);
        KL_UNROLL
        for (int c = 0; c < 4; ++c) value[c] += w * x[c];
      }
      base += 8 * kCombineParts;
      if (base < live) attention_combine_load(values, a.padded, base, live, inside, got);
    }
    shared[kl::thread()] = pack(value);
    kl::sync();
    KL_UNROLL
    for (int p = 1; p < kCombineParts; ++p) {
      float x[4];
      unpack(shared[p * kCombineAcross + across], x);
      KL_UNROLL
      for (int c = 0; c < 4; ++c) value[c] += x[c];
    }
    KL_UNROLL
    for (int c = 0; c < 4; ++c)
      if (part == 0 && column + c < a.of.values)
        store(*a.of.out.at(t, head, column + c), sum == 0 ? 0.0f : value[c] / sum);
    kl::sync();  // the next row overwrites the weights and parts
  }
}

// Chunks of a row: at most, and so many that one row fills the card.
inline int64_t attention_split_step(int64_t heads) {
  int64_t groups = (heads + kSplitHeads - 1) / kSplitHeads, n = kSplitBlocks / groups;
  return n < 4 ? 4 : n > kSplitChunks ? kSplitChunks : n;
}

inline int64_t attention_split_chunks(int64_t heads, int64_t max_keys) {
  int64_t spans = (max_keys + kSplitSpan - 1) / kSplitSpan, most = attention_split_step(heads);
  return spans < most ? spans : most;
}

inline int64_t attention_split_padded(int64_t values) { return (values + 3) / 4 * 4; }

int64_t attention_split_workspace(int64_t rows, int64_t heads, int64_t values, int64_t max_keys) {
  return rows * heads * attention_split_chunks(heads, max_keys) *
         (attention_split_padded(values) + 2) * 4;
}

// `whole`: all rows are whole vectors. With `matrix`, products of matrices where the shape allows.
template <class T>
void launch_attention_split(GpuStream s, const char* op, const AttentionArgs<T>& of,
                            const Tensor& workspace, bool whole, bool matrix) {
  AttentionSplitArgs<T> a = {};
  a.of = of;
  int64_t max_keys = of.step ? of.window : 0;
  if (of.entries) max_keys += of.selected ? of.listed : of.table.stride * of.table.page_size;
  int64_t chunks = attention_split_chunks(of.heads, max_keys);
  int64_t groups = (of.heads + kSplitHeads - 1) / kSplitHeads;
  a.padded = attention_split_padded(of.values);
  a.groups = static_cast<int>(groups);
  a.chunks = static_cast<int>(chunks);
  a.step = static_cast<int>(attention_split_step(of.heads));
  a.vectors = static_cast<int>((of.width + kPerVector<T> - 1) / kPerVector<T>);
  a.reciprocal = ((uint64_t{1} << 32) + a.vectors - 1) / a.vectors;
  a.whole = whole;
  a.values = workspace.at<float>();
  a.stats = a.values + of.rows * of.heads * chunks * a.padded;
  int64_t shared = (kSplitHeads + kSplitKeys<T>)*a.vectors * 16;
  int64_t wanted = attention_split_workspace(of.rows, of.heads, of.values, max_keys);
  int64_t slices = (a.padded + 127) / 128, most = int64_t{1} << 30;
  HADAL_CHECK(of.values <= kSplitMaxValues && shared <= 45 << 10 &&
                  of.rows * groups * chunks < most && of.rows * of.heads * slices < most,
              std::string("[") + op + "] keys of " + std::to_string(of.width) + " and values of " +
                  std::to_string(of.values) + " numbers");
  HADAL_CHECK(workspace.bytes() >= wanted && reinterpret_cast<uintptr_t>(workspace.data) % 16 == 0,
              std::string("[") + op + "] workspace " + workspace.describe() + ", wanted " +
                  std::to_string(wanted) + " bytes at a multiple of 16");
  bool done = false;
  if constexpr (sizeof(T) == 2 && kl::kMatrixUnits) {
    done = matrix && whole && of.width % 16 == 0 && of.values % 8 == 0;
    int64_t pairs = (of.heads + kMatrixHeads - 1) / kMatrixHeads;
    int64_t bytes = (kMatrixHeads + kSplitSpan) * (a.vectors + kMatrixGap) * 16;
    if (done)
      kl::launch(attention_matrix_kernel<T>, {kl::grid(s, of.rows * pairs * chunks)}, kSplitThreads,
                 bytes, s, a);
  }
  if (!done)
    kl::launch(attention_split_kernel<T>, {kl::grid(s, of.rows * groups * chunks)}, kSplitThreads,
               shared, s, a);
  kl::launch(attention_combine_kernel<T>, {kl::grid(s, of.rows * of.heads * slices)},
             kCombineThreads, 0, s, a);
}

inline void launch_mla_split(GpuStream s, const char* op, const Batch& batch, const MlaAttention& m,
                             const Tensor& workspace, bool matrix) {
  check_mla_attention(batch, m);
  bool whole = rows_of_vectors(m.q) && rows_of_vectors(m.entries);
  with_activation(op, m.q.dtype, [&](auto type) {
    launch_attention_split(s, op, attention_args<decltype(type)>(batch, m), workspace, whole,
                           matrix);
  });
}

inline void launch_sparse_split(GpuStream s, const char* op, const Batch& batch,
                                const SparseAttention& p, const Tensor& workspace, bool matrix) {
  check_sparse_attention(batch, p);
  bool whole = rows_of_vectors(p.q) && rows_of_vectors(p.step_kv);
  for (const Tensor* t : {&p.ring, &p.entries})
    whole = whole && (t->empty() || rows_of_vectors(*t));
  with_activation(op, p.q.dtype, [&](auto type) {
    launch_attention_split(s, op, attention_args<decltype(type)>(batch, p), workspace, whole,
                           matrix);
  });
}

void mla_attention_split(GpuStream s, const Batch& batch, const MlaAttention& m,
                         const Tensor& workspace) {
  launch_mla_split(s, "mla_attention_split", batch, m, workspace, false);
}

void sparse_attention_split(GpuStream s, const Batch& batch, const SparseAttention& p,
                            const Tensor& workspace) {
  launch_sparse_split(s, "sparse_attention_split", batch, p, workspace, false);
}

void mla_attention_matrix(GpuStream s, const Batch& batch, const MlaAttention& m,
                          const Tensor& workspace) {
  launch_mla_split(s, "mla_attention_matrix", batch, m, workspace, true);
}

void sparse_attention_matrix(GpuStream s, const Batch& batch, const SparseAttention& p,
                             const Tensor& workspace) {
  launch_sparse_split(s, "sparse_attention_matrix", batch, p, workspace, true);
}

}  // namespace hadal::KL_TARGET
