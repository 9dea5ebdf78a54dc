// Indexer scores with one head per lane: the queries of a row are transposed once, and each key
// element is broadcast, so that no score needs a sum across lanes until the heads are summed.
// The loops for one vector width P with FMA. Include inside the target region of P's instructions.
#pragma once

namespace hadal {
namespace {

// The transposed queries and weights of one row, padded with heads of weight 0.
template <class Q>
struct IndexRow {
  Q* q;      // [depth, heads]
  float* w;  // [heads]
  int64_t heads, depth;
};

// relu and weight of one vector of heads, with the release's roundings if asked.
template <class P>
inline typename P::V weigh(typename P::V dot, typename P::V w, bool round) {
  if (!round) return P::mul(P::max(dot, P::zero()), w);
  return P::round_bf16(P::mul(P::max(P::round_bf16(dot), P::zero()), w));
}

// Adds the weighted scores of kKeys keys over N vectors of heads from `h` on. step(d, key) gives
// the broadcast of element d; P's multiply-add is `accumulate`.
template <class P, int N, int kKeys, class Q, class Broadcast, class Accumulate>
inline void index_tile(const IndexRow<Q>& row, int64_t h, bool round, typename P::V* sums,
                       Broadcast&& broadcast, Accumulate&& accumulate) {
  using V = typename P::V;
  V acc[kKeys][N];
  for (auto& a : acc)
    for (V& v : a) v = P::zero();
  for (int64_t d = 0; d < row.depth; ++d) {
    const Q* q = row.q + d * row.heads + h;
    for (int k = 0; k < kKeys; ++k) {
      auto x = broadcast(d, k);
      for (int i = 0; i < N; ++i) acc[k][i] = accumulate(acc[k][i], q + i * P::kLanes, x);
    }
  }
  for (int i = 0; i < N; ++i) {
    V w = P::load(row.w + h + i * P::kLanes);
    for (int k = 0; k < kKeys; ++k) sums[k] = P::add(sums[k], weigh<P>(acc[k][i], w, round));
  }
}

// All heads of kKeys keys; `out` receives one score each.
template <class P, int N, int kKeys, class Q, class Broadcast, class Accumulate>
inline void index_keys(const IndexRow<Q>& row, bool round, float* out, Broadcast&& broadcast,
                       Accumulate&& accumulate) {
  typename P::V sums[kKeys];
  for (auto& s : sums) s = P::zero();
  int64_t h = 0;
  for (; h + N * P::kLanes <= row.heads; h += N * P::kLanes)
    index_tile<P, N, kKeys>(row, h, round, sums, broadcast, accumulate);
  for (; h < row.heads; h += P::kLanes)
    index_tile<P, 1, kKeys>(row, h, round, sums, broadcast, accumulate);
  for (int k = 0; k < kKeys; ++k) out[k] = P::sum(sums[k]);
}

// FMA on fp32 copies of up to kKeys keys.  keys [kKeys][depth]
template <class P, int N, int kKeys>
void index_keys_fma(const IndexRow<float>& row, bool round, const float* keys, float* out) {
  index_keys<P, N, kKeys>(
      row, round, out, [&](int64_t d, int k) { return P::set1(keys[k * row.depth + d]); },
      [](typename P::V acc, const float* q, typename P::V x) {
        return P::fmadd(P::load(q), x, acc);
      });
}

template <class P>
void widen_row(const BF16* from, int64_t n, float* to) {
  int64_t i = 0;
  for (; i + P::kLanes <= n; i += P::kLanes) P::store(to + i, P::load(from + i));
  P::store(to + i, P::load(from + i, n - i), n - i);
}
template <class P>
void widen_row(const float* from, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = from[i];
}

}  // namespace
}  // namespace hadal
