// mHC: one block per tile of four tokens. The warps share the columns of the tile, so that a single
// token keeps the whole block busy; each lane sums 4 tokens x 8 mixes, warps are added in order.
// Results do not depend on the number of tokens. Portable GPU kernels (kl.h); contract in
// kernels/hyper.h.
#pragma once

#include "kernels/gpu/hyper_maps.cu.h"
#include "kernels/gpu/kl.h"
#include "kernels/gpu/launchers.h"

namespace hadal::KL_TARGET {

inline constexpr int kHyperThreads = 256;
inline constexpr int kHyperWarps = kHyperThreads / 32;
inline constexpr int kHyperTile = 4;   // tokens of a block
inline constexpr int kHyperMixes = 8;  // mixes that a pass over the columns sums

// What the tile of a block keeps in shared memory.
struct HyperTile {
  float part[kHyperWarps][kHyperTile * kHyperMixes];
  float squares[kHyperWarps][kHyperTile];
  float mix[kHyperTile][kHyperAll];  // raw, then pre, post and comb in place
};

// Sums of mixes [first, first + 8) and, in the first pass, of the squares, one set per warp.
template <class T>
KL_DEVICE void hyper_project(const HyperArgs<T>& p, int64_t row0, int first, HyperTile& tile) {
  float sum[kHyperTile * kHyperMixes] = {}, squares[kHyperTile] = {};
  for (int j = 0; j < p.streams; ++j) {
    for (int64_t c = kl::thread(); c < p.columns; c += kl::threads()) {
      float v[kHyperTile];
      KL_UNROLL
      for (int i = 0; i < kHyperTile; ++i) {
        v[i] = row0 + i < p.rows ? load(*p.x.at(row0 + i, j, c)) : 0.0f;
        squares[i] += v[i] * v[i];
      }
      KL_UNROLL
      for (int m = 0; m < kHyperMixes; ++m) {
        if (first + m >= p.mixes) continue;
        float f = *p.fn.at(first + m, j * p.columns + c);
        KL_UNROLL
        for (int i = 0; i < kHyperTile; ++i) sum[i * kHyperMixes + m] += v[i] * f;
      }
    }
  }
  float total = kl::warp_sums(sum);
  // A lane holds the sum of one (token, mix); the upper half of a wide warp only repeats them, and
  // the last tile may end before its fourth token: both guards are needed.
  int lane = kl::lane();
  if (lane < kHyperTile * kHyperMixes && row0 + lane / kHyperMixes < p.rows)
    tile.part[kl::warp()][lane] = total;
  if (first > 0) return;
  KL_UNROLL
  for (int i = 0; i < kHyperTile; ++i) {
    float all = kl::warp_sum(squares[i]);
    if (lane == 0 && row0 + i < p.rows) tile.squares[kl::warp()][i] = all;
  }
}

// tile.mix[i][m]: the raw mixes of the tile's tokens.
template <class T>
KL_DEVICE void hyper_mixes(const HyperArgs<T>& p, int64_t row0, HyperTile& tile) {
  for (int first = 0; first < p.mixes; first += kHyperMixes) {
    hyper_project(p, row0, first, tile);
    kl::sync();
    int i = kl::thread() / kHyperMixes, m = first + kl::thread() % kHyperMixes;
    if (i < kHyperTile && row0 + i < p.rows && m < p.mixes) {
      float sum = 0;
      for (int w = 0; w < kl::warps(); ++w) sum += tile.part[w][kl::thread()];
      tile.mix[i][m] = sum;
    }
    kl::sync();  // the next pass refills `part`
  }
}

// pre, post and the logits of comb, in place.
template <class T>
KL_DEVICE void hyper_gates(const HyperArgs<T>& p, int64_t row0, HyperTile& tile) {
  for (int n = kl::thread(); n < kHyperTile * p.mixes; n += kl::threads()) {
    int i = n / p.mixes, m = n % p.mixes;
    if (row0 + i >= p.rows) continue;
    float squares = 0;
    for (int w = 0; w < kl::warps(); ++w) squares += tile.squares[w][i];
    tile.mix[i][m] = hyper_gate(p, m, tile.mix[i][m], squares, hyper_gate_of(p, m));
  }
  kl::sync();
}

// One thread per row, then one per column, of every token's matrix.
template <class T>
KL_DEVICE void hyper_sinkhorn(const HyperArgs<T>& p, int64_t row0, HyperTile& tile) {
  int r = p.streams, i = kl::thread() / r, n = kl::thread() % r;
  bool mine = i < kHyperTile && row0 + i < p.rows;
  for (int iteration = 0; iteration < p.iterations; ++iteration) {
    if (mine) hyper_normalise(&tile.mix[i][2 * r + n * r], r, 1, iteration == 0, p.eps);
    kl::sync();
    if (mine) hyper_normalise(&tile.mix[i][2 * r + n], r, r, false, p.eps);
    kl::sync();
  }
}

// y of the tile, and post and comb.
template <class T>
KL_DEVICE void hyper_write(const HyperArgs<T>& p, int64_t row0, const HyperTile& tile) {
  int r = p.streams;
  for (int i = 0; i < kHyperTile && row0 + i < p.rows; ++i) {
    int64_t t = row0 + i;
    for (int64_t c = kl::thread(); c < p.columns; c += kl::threads()) {
      float sum = 0;
      for (int j = 0; j < r; ++j) sum += tile.mix[i][j] * load(*p.x.at(t, j, c));
      store(*p.y.at(t, c), sum);
    }
    if (p.head) continue;
    for (int m = r + kl::thread(); m < p.mixes; m += kl::threads()) {
      float v = tile.mix[i][m];
      if (m < 2 * r)
        *p.post.at(t, m - r) = v;
      else
        *p.comb.at(t, (m - 2 * r) / r, (m - 2 * r) % r) = v;
    }
  }
}

// limits: vgprs 160, lds 4096
template <class T>
KL_KERNEL(kHyperThreads)
hyper_kernel(HyperArgs<T> p) {
  KL_SHARED(HyperTile, tile, );
  int64_t tiles = (p.rows + kHyperTile - 1) / kHyperTile;
  for (int64_t n = kl::block(); n < tiles; n += kl::blocks()) {
    int64_t row0 = n * kHyperTile;
    if (p.a) {
      float next[kHyperStreams];
      for (int i = 0; i < kHyperTile && row0 + i < p.rows; ++i)
        for (int64_t c = kl::thread(); c < p.columns; c += kl::threads())
          hyper_post_column(p, row0 + i, c, next);
      kl::sync();  // the streams are written, post and comb may be overwritten
    }
    hyper_mixes(p, row0, tile);
    hyper_gates(p, row0, tile);
    if (!p.head) hyper_sinkhorn(p, row0, tile);
    hyper_write(p, row0, tile);
    kl::sync();  // the next tile refills the shared memory
  }
}

// limits: vgprs 64, lds 0
template <class T>
KL_KERNEL(kHyperThreads)
hyper_post_kernel(HyperArgs<T> p) {
  int64_t step = kl::blocks() * kl::threads();
  float next[kHyperStreams];
  for (int64_t n = kl::block() * kl::threads() + kl::thread(); n < p.rows * p.columns; n += step)
    hyper_post_column(p, n / p.columns, n % p.columns, next);
}

void hyper_post_pre(GpuStream s, const Tensor& a, const Tensor& x, const HyperWeights& w,
                    const HyperParams& p, const Tensor& y, const Tensor& post, const Tensor& comb) {
  check_hyper_post_pre(a, x, w, y, post, comb);
  int64_t tiles = (x.shape[0] + kHyperTile - 1) / kHyperTile;
  with_activation("hyper_pre", x.dtype, [&](auto type) {
    using T = decltype(type);
    HyperArgs<T> args = hyper_args<T>(a, x, w, p, y, post, comb);
    kl::launch(hyper_kernel<T>, {kl::grid(s, tiles)}, kHyperThreads, 0, s, args);
  });
}

void hyper_pre(GpuStream s, const Tensor& x, const HyperWeights& w, const HyperParams& p,
               const Tensor& y, const Tensor& post, const Tensor& comb) {
  hyper_post_pre(s, {}, x, w, p, y, post, comb);
}

void hyper_head(GpuStream s, const Tensor& x, const HyperWeights& w, const HyperParams& p,
                const Tensor& y) {
  check_hyper_head(x, w, y);
  int64_t tiles = (x.shape[0] + kHyperTile - 1) / kHyperTile;
  with_activation("hyper_head", x.dtype, [&](auto type) {
    using T = decltype(type);
    HyperArgs<T> args = hyper_args<T>(x, w, p, y);
    args.head = true;
    kl::launch(hyper_kernel<T>, {kl::grid(s, tiles)}, kHyperThreads, 0, s, args);
  });
}

void hyper_post(GpuStream s, const Tensor& a, const Tensor& post, const Tensor& comb,
                const Tensor& x) {
  int64_t rows = x.shape[0], r = x.shape[1], c = x.shape[2];
  expect_shape("hyper_post", "a", a, {rows, c});
  expect_dtype("hyper_post", "a", a, x.dtype);
  expect_shape("hyper_post", "post", post, {rows, r});
  expect_shape("hyper_post", "comb", comb, {rows, r, r});
  HADAL_CHECK(r <= kHyperStreams, "[hyper_post] x " + x.describe() + ", more than 8 streams");
  int64_t blocks = (rows * c + kHyperThreads - 1) / kHyperThreads;
  with_activation("hyper_post", x.dtype, [&](auto type) {
    using T = decltype(type);
    HyperArgs<T> args = {};
    args.x = view<T>(x);
    args.a = view<T>(a);
    args.post = view<float>(post);
    args.comb = view<float>(comb);
    args.rows = rows;
    args.columns = c;
    args.streams = static_cast<int>(r);
    kl::launch(hyper_post_kernel<T>, {kl::grid(s, blocks)}, kHyperThreads, 0, s, args);
  });
}

}  // namespace hadal::KL_TARGET
