// Lightning-indexer scores of few rows: a block takes one row, 32 keys and 64 heads at a time. A
// thread makes the products of 8 heads and 4 keys over a quarter of the columns, in registers; the
// four quarters lie in neighbouring lanes and are added by swapping halves, so that each lane ends
// with all heads of one key. Heads are added in order. Portable GPU kernels (kl.h); contract in
// kernels/index_score.h.
#pragma once

#include "kernels/gpu/index_args.cu.h"
#include "kernels/gpu/kl.h"
#include "kernels/gpu/launchers.h"
#include "kernels/gpu/vector16.cu.h"

namespace hadal::KL_TARGET {

inline constexpr int kIndexFewThreads = 256;
inline constexpr int kIndexFewKeys = 32;   // of a block
inline constexpr int kIndexFewParts = 4;   // threads that share the columns; keys of a thread
inline constexpr int kIndexFewAcross = 8;  // threads side by side over the keys, and over the heads
inline constexpr int kIndexFewBlocks = 1024;  // at most: empty ones of a long table cost time too
inline constexpr int kIndexFewRows = 8;       // that a warp loads at once

// Heads of a thread: both operands of a block fit into 46 KiB at 128 columns.
template <class T>
inline constexpr int kIndexFewHeads = sizeof(T) == 2 ? 8 : 4;

template <class T>
struct IndexFewArgs {
  IndexArgs<T> of;
  int fours, pitch;  // of four numbers each: of a row (zeros at the end), between rows in memory
  bool whole;        // rows of q and keys are whole vectors
};

// `rows` rows at(0), at(1), ... into shared memory, a null one as zeros.
template <class T, class At>
KL_DEVICE void index_few_copy(const IndexFewArgs<T>& a, int rows, FourOf<T>* to, At&& at) {
  int width = static_cast<int>(a.of.width);
  for (int row = kl::warp(); row < rows; row += kIndexFewRows * kl::warps()) {
    const T* from[kIndexFewRows];
    KL_UNROLL
    for (int i = 0; i < kIndexFewRows; ++i) {
      int r = row + i * kl::warps();
      from[i] = r < rows ? at(r) : nullptr;
    }
    for (int f = kl::lane(); f < a.fours; f += kl::warp_size()) {
      float x[kIndexFewRows][4] = {};
      KL_UNROLL
      for (int i = 0; i < kIndexFewRows; ++i) {
        if (!from[i]) continue;
        if (a.whole && f * 4 < width) unpack(reinterpret_cast<const FourOf<T>*>(from[i])[f], x[i]);
        KL_UNROLL
        for (int k = 0; k < 4; ++k)
          if (!a.whole && f * 4 + k < width) x[i][k] = load(from[i][f * 4 + k]);
      }
      KL_UNROLL
      for (int i = 0; i < kIndexFewRows; ++i)
        if (row + i * kl::warps() < rows)
          to[(row + i * kl::warps()) * a.pitch + f] = pack_four<T>(x[i]);
    }
  }
}

// dot[h]: products of this thread's head h and the key that is its own after the swaps.
template <class T>
KL_DEVICE void index_few_products(const IndexFewArgs<T>& a, const FourOf<T>* queries,
                                  const FourOf<T>* keys, float (&dot)[kIndexFewHeads<T>]) {
  constexpr int kHeads = kIndexFewHeads<T>;
  int part = kl::thread() % kIndexFewParts, unit = kl::thread() / kIndexFewParts;
  const FourOf<T>* query = queries + unit / kIndexFewAcross * kHeads * a.pitch;
  const FourOf<T>* key = keys + unit % kIndexFewAcross * a.pitch;
  float sum[kHeads][4] = {};
  KL_UNROLL_BY(1)
  for (int f = part; f < a.fours; f += kIndexFewParts) {
    float q[kHeads][4];
    KL_UNROLL
    for (int h = 0; h < kHeads; ++h) unpack(query[h * a.pitch + f], q[h]);
    KL_UNROLL
    for (int k = 0; k < 4; ++k) {
      float x[4];
      unpack(key[k * kIndexFewAcross * a.pitch + f], x);
      KL_UNROLL
      for (int h = 0; h < kHeads; ++h) {
        KL_UNROLL
        for (int d = 0; d < 4; ++d) sum[h][k] += q[h][d] * x[d];
      }
    }
  }
  bool upper = part & 2, odd = part & 1;
  KL_UNROLL
  for (int h = 0; h < kHeads; ++h) {
    float v[2];
    KL_UNROLL
    for (int k = 0; k < 2; ++k) {
      float keep = upper ? sum[h][k + 2] : sum[h][k], give = upper ? sum[h][k] : sum[h][k + 2];
      v[k] = keep + kl::shfl_xor(give, 2);
    }
    float keep = odd ? v[1] : v[0], give = odd ? v[0] : v[1];
    dot[h] = keep + kl::shfl_xor(give, 1);
  }
}

// limits: vgprs 160, lds 1024
template <class T>
KL_KERNEL(kIndexFewThreads, 2)
index_score_few_kernel(IndexFewArgs<T> a) {
  constexpr int kHeads = kIndexFewHeads<T>, kAll = kHeads * kIndexFewAcross;  // of a block
  KL_DYNAMIC_SHARED(FourOf<T>, keys);  // [32][pitch], then queries [kAll][pitch]
  KL_SHARED(float, shared, [kIndexFewAcross][kIndexFewKeys]);
  FourOf<T>* queries = keys + kIndexFewKeys * a.pitch;
  int tiles = static_cast<int>((a.of.columns + kIndexFewKeys - 1) / kIndexFewKeys);
  int all = static_cast<int>(a.of.rows) * tiles, step = static_cast<int>(kl::blocks());
  int unit = kl::thread() / kIndexFewParts, team = unit / kIndexFewAcross;
  int own = unit % kIndexFewAcross + kl::thread() % kIndexFewParts * kIndexFewAcross;  // key
  int held = -1;  // the row whose queries are in shared memory
  for (int n = static_cast<int>(kl::block()); n < all; n += step) {
    int row = n / tiles, first = n % tiles * kIndexFewKeys;
    int64_t t = a.of.row0 + row, s = a.of.batch.sequence[t];
    int64_t visible = (a.of.batch.positions[t] + 1) / a.of.ratio;
    if (visible > a.of.columns) visible = a.of.columns;
    if (first >= visible) continue;  // the same for the whole block
    // A lane has the page of key `lane`, on its way while the queries are loaded.
    uint32_t size = static_cast<uint32_t>(a.of.table.page_size);
    uint32_t at = static_cast<uint32_t>(first + kl::lane() % kIndexFewKeys);
    int32_t page = at < visible ? a.of.table.pages[s * a.of.table.stride + at / size] : 0;
    float sum = 0;
    for (int64_t head = 0; head < a.of.heads; head += kAll) {
      if (held != row || a.of.heads > kAll)
        index_few_copy(a, kAll, queries, [&](int h) -> const T* {
          return head + h < a.of.heads ? a.of.q.at(t, head + h) : nullptr;
        });
      held = row;
      if (head == 0)
        index_few_copy(a, kIndexFewKeys, keys, [&](int k) -> const T* {
          int64_t from = kl::shfl(page, k);
          return first + k < visible ? a.of.keys.at(from, (first + k) % size) : nullptr;
        });
      float weight[kHeads], dot[kHeads];
      KL_UNROLL
      for (int h = 0; h < kHeads; ++h) {
        int64_t at = head + team * kHeads + h;
        weight[h] = at < a.of.heads ? *a.of.weights.at(t, at) : 0.0f;
      }
      kl::sync();
      index_few_products(a, queries, keys, dot);
      KL_UNROLL
      for (int h = 0; h < kHeads; ++h) {
        if (a.of.round) dot[h] = round_bf16(dot[h]);
        float term = (dot[h] > 0 ? dot[h] : dot[h] != dot[h] ? dot[h] : 0.0f) * weight[h];
        sum += a.of.round ? round_bf16(term) : term;
      }
      kl::sync();  // the next heads, or the next keys, overwrite what was read
    }
    shared[team][own] = sum;
    kl::sync();
    if (kl::thread() < kIndexFewKeys && first + kl::thread() < visible) {
      float total = 0;
      for (int p = 0; p < kIndexFewAcross; ++p) total += shared[p][kl::thread()];
      *a.of.scores.at(row, first + kl::thread()) = a.of.round ? round_bf16(total) : total;
    }
    kl::sync();  // the next tile overwrites the sums
  }
}

void index_score_few(GpuStream s, const Batch& batch, const IndexScore& a) {
  check_index_score(batch, a);
  bool whole = rows_of_vectors(a.q) && rows_of_vectors(a.keys);
  with_activation("index_score_few", a.q.dtype, [&](auto type) {
    using T = decltype(type);
    IndexFewArgs<T> args = {};
    args.of = index_args<T>(batch, a);
    args.whole = whole;
    args.fours = static_cast<int>((args.of.width + 15) / 16 * kIndexFewParts);
    args.pitch = args.fours + 32 / static_cast<int>(sizeof(FourOf<T>));  // other banks for each key
    int64_t shared = (kIndexFewKeys + kIndexFewHeads<T> * kIndexFewAcross) * args.pitch *
                     static_cast<int64_t>(sizeof(FourOf<T>));
    int64_t tiles = (args.of.columns + kIndexFewKeys - 1) / kIndexFewKeys;
    HADAL_CHECK(shared <= 46 << 10 && a.rows * tiles < int64_t{1} << 30,
                "[index_score_few] q " + a.q.describe() + ", scores " + a.scores.describe());
    int64_t blocks = a.rows * tiles < kIndexFewBlocks ? a.rows * tiles : kIndexFewBlocks;
    kl::launch(index_score_few_kernel<T>, {kl::grid(s, blocks)}, kIndexFewThreads, shared, s, args);
  });
}

}  // namespace hadal::KL_TARGET
