// Around the expert products: the sort of (token, choice) pairs by expert, the gated activation and
// the sum over a token's experts. Portable GPU kernels (kl.h); contracts in kernels/moe_route.h and
// kernels/moe_combine.h.
#pragma once

#include "kernels/cpu/element.h"
#include "kernels/gpu/kl.h"
#include "kernels/gpu/launchers.h"
#include "kernels/moe_combine.h"

namespace hadal::KL_TARGET {

inline constexpr int kMoeThreads = 256;
inline constexpr int kMoeChoices = 64;  // experts per token, at most

struct SortArgs {
  View<int32_t> chosen;
  int64_t pairs, k, first, experts;
  int32_t *offsets, *pair, *row;
};

// One block per expert: it counts the pairs of the experts before, then lists its own in order.
// Every block reads all pairs, which are few, so that none waits for another.
// limits: vgprs 64, lds 512
KL_KERNEL(kMoeThreads) moe_sort_kernel(SortArgs a) {
  KL_SHARED(int, before, );
  for (int64_t e = kl::block(); e <= a.experts; e += kl::blocks()) {
    if (kl::thread() == 0) before = 0;
    kl::sync();
    int mine = 0;
    for (int64_t p = kl::thread(); p < a.pairs; p += kl::threads()) {
      int64_t id = *a.chosen.at(p / a.k, p % a.k) - a.first;
      mine += id >= 0 && id < e;
    }
    if (mine) kl::atomic_add(&before, mine);  // whole numbers: any order gives the same sum
    kl::sync();
    int64_t at = before;
    if (kl::thread() == 0) a.offsets[e] = static_cast<int32_t>(at);
    for (int64_t base = 0; e < a.experts && base < a.pairs; base += kl::threads()) {
      int64_t p = base + kl::thread();
      bool here = p < a.pairs && *a.chosen.at(p / a.k, p % a.k) - a.first == e;
      kl::Rank rank = kl::block_rank(here);
      if (here) {
        a.pair[at + rank.before] = static_cast<int32_t>(p);
        a.row[at + rank.before] = static_cast<int32_t>(p / a.k);
      }
      at += rank.total;
    }
    kl::sync();  // the next expert resets the count
  }
}

template <class T>
struct SwigluArgs {
  View<T> gate, up, y;
  const float* weights;
  const int32_t *pair, *used;
  int64_t rows, columns;
  float limit;
};

// limits: vgprs 64, lds 0
template <class T>
KL_KERNEL(kMoeThreads)
swiglu_kernel(SwigluArgs<T> a) {
  int64_t rows = a.used && *a.used < a.rows ? *a.used : a.rows;
  int64_t step = kl::blocks() * kl::threads();
  for (int64_t n = kl::block() * kl::threads() + kl::thread(); n < rows * a.columns; n += step) {
    int64_t i = n / a.columns, c = n % a.columns;
    float g = kl::min_of(load(*a.gate.at(i, c)), a.limit);
    float u = kl::clamp_to(load(*a.up.at(i, c)), a.limit);
    float w = a.weights ? a.weights[a.pair[i]] : 1.0f;
    store(*a.y.at(i, c), w * (g / (1.0f + kl::exp_accurate(-g)) * u));
  }
}

template <class T>
struct CombineArgs {
  View<T> y, shared, out;
  const int32_t *pair, *used;
  const float* weights;
  int64_t pairs, rows, columns, k;
};

// A block sums kMoeThreads columns of one token. It looks through all sorted pairs for the token's
// own: they are few, and positions ascend with the expert id, so they come in the order of the sum.
// limits: vgprs 64, lds 1024
template <class T>
KL_KERNEL(kMoeThreads)
moe_combine_kernel(CombineArgs<T> a) {
  KL_SHARED(int32_t, at, [kMoeChoices]);
  KL_SHARED(float, weight, [kMoeChoices]);
  int pairs = static_cast<int>(a.used ? *a.used : a.pairs), k = static_cast<int>(a.k);
  int64_t parts = (a.columns + kMoeThreads - 1) / kMoeThreads;
  for (int64_t n = kl::block(); n < a.rows * parts; n += kl::blocks()) {
    int t = static_cast<int>(n / parts), found = 0;
    for (int base = 0; base < pairs; base += kl::threads()) {
      int i = base + kl::thread();
      int pair = i < pairs ? a.pair[i] : -1;
      bool mine = pair >= 0 && pair / k == t;
      kl::Rank rank = kl::block_rank(mine);
      if (mine) {
        at[found + rank.before] = i;
        weight[found + rank.before] = a.weights ? a.weights[pair] : 1.0f;
      }
      found += rank.total;
    }
    kl::sync();
    int64_t c = n % parts * kMoeThreads + kl::thread();
    if (c < a.columns) {
      float sum = 0;
      KL_UNROLL_BY(8)
      for (int j = 0; j < found; ++j) sum += weight[j] * load(*a.y.at(at[j], c));
      if (a.shared) sum += load(*a.shared.at(t, c));
      store(*a.out.at(t, c), sum);
    }
    kl::sync();  // the next token overwrites the positions
  }
}

void moe_sort(GpuStream s, const Tensor& chosen, int64_t first, int64_t experts, int32_t* offsets,
              int32_t* pair, int32_t* row) {
  expect_dtype("moe_sort", "chosen", chosen, DType::kI32);
  int64_t k = chosen.shape[1];
  kl::launch(
      moe_sort_kernel, {kl::grid(s, experts + 1)}, kMoeThreads, 0, s,
      SortArgs{view<int32_t>(chosen), chosen.shape[0] * k, k, first, experts, offsets, pair, row});
}

void swiglu(GpuStream s, const Tensor& gate, const Tensor& up, float limit, const float* weights,
            const int32_t* pair, const int32_t* used, const Tensor& y) {
  int64_t m = gate.shape[0], n = gate.shape[1];
  expect_shape("swiglu", "up", up, {m, n});
  expect_shape("swiglu", "y", y, {m, n});
  expect_dtype("swiglu", "up", up, gate.dtype);
  expect_dtype("swiglu", "y", y, gate.dtype);
  int64_t blocks = (m * n + kMoeThreads - 1) / kMoeThreads;
  with_activation("swiglu", gate.dtype, [&](auto type) {
    using T = decltype(type);
    kl::launch(swiglu_kernel<T>, {kl::grid(s, blocks)}, kMoeThreads, 0, s,
               SwigluArgs<T>{view<T>(gate), view<T>(up), view<T>(y), weights, pair, used, m, n,
                             limit > 0 ? limit : INFINITY});
  });
}

void moe_combine(GpuStream s, const Tensor& y, const int32_t* pair, const int32_t* used, int64_t k,
                 const float* weights, const Tensor& shared, int32_t*, const Tensor& out) {
  int64_t rows = out.shape[0], columns = out.shape[1], pairs = y.shape[0];
  expect_shape("moe_combine", "y", y, {pairs, columns});
  expect_dtype("moe_combine", "y", y, out.dtype);
  HADAL_CHECK(k <= kMoeChoices, "[moe_combine] more than 64 experts per token");
  if (!shared.empty()) expect_shape("moe_combine", "shared", shared, {rows, columns});
  if (!shared.empty()) expect_dtype("moe_combine", "shared", shared, out.dtype);
  with_activation("moe_combine", out.dtype, [&](auto type) {
    using T = decltype(type);
    CombineArgs<T> a{view<T>(y), view<T>(shared), view<T>(out), pair,    used,
                     weights,    pairs,           rows,         columns, k};
    int64_t parts = (columns + kMoeThreads - 1) / kMoeThreads;
    kl::launch(moe_combine_kernel<T>, {kl::grid(s, rows * parts)}, kMoeThreads, 0, s, a);
  });
}

}  // namespace hadal::KL_TARGET
