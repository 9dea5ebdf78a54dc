// mHC: one block per tile of four tokens. The warps share the columns of the tile, so that a single
// token keeps the whole block busy; each lane sums 4 tokens x 8 mixes, warps are added in order.
// Results do not depend on the number of tokens. Portable GPU kernels (kl.h); contract in
// kernels/hyper.h.
#pragma once

#include "kernels/cpu/element.h"
#include "kernels/gpu/kl.h"
#include "kernels/gpu/launchers.h"

namespace hadal::KL_TARGET {

inline constexpr int kHyperThreads = 256;
inline constexpr int kHyperWarps = kHyperThreads / 32;
inline constexpr int kHyperTile = 4;     // tokens of a block
inline constexpr int kHyperMixes = 8;    // mixes that a pass over the columns sums
inline constexpr int kHyperStreams = 8;  // at most
inline constexpr int kHyperAll = 2 * kHyperStreams + kHyperStreams * kHyperStreams;

template <class T>
struct HyperArgs {
  View<T> x, y, a;  // a: the branch output of the pending post, or null
  View<float> fn, post, comb;
  const float *base, *scale;
  int64_t rows, columns;
  int streams, mixes, iterations;
  float norm_eps, eps;
  bool head;  // pre and y only
};

// What the tile of a block keeps in shared memory.
struct HyperTile {
  float part[kHyperWarps][kHyperTile * kHyperMixes];
  float squares[kHyperWarps][kHyperTile];
  float mix[kHyperTile][kHyperAll];  // raw, then pre, post and comb in place
};

// X[t, k, c] of all k <- post and comb of the token.
template <class T>
KL_DEVICE void hyper_post_column(const HyperArgs<T>& p, int64_t t, int64_t c) {
  float old[kHyperStreams] = {}, in = load(*p.a.at(t, c));
  KL_UNROLL
  for (int j = 0; j < kHyperStreams; ++j)
    if (j < p.streams) old[j] = load(*p.x.at(t, j, c));
  for (int k = 0; k < p.streams; ++k) {
    float sum = *p.post.at(t, k) * in;
    KL_UNROLL
    for (int j = 0; j < kHyperStreams; ++j)
      if (j < p.streams) sum += *p.comb.at(t, j, k) * old[j];
    store(*p.x.at(t, k, c), sum);
  }
}

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
  int r = p.streams;
  for (int n = kl::thread(); n < kHyperTile * p.mixes; n += kl::threads()) {
    int i = n / p.mixes, m = n % p.mixes;
    if (row0 + i >= p.rows) continue;
    float squares = 0;
    for (int w = 0; w < kl::warps(); ++w) squares += tile.squares[w][i];
    float width = static_cast<float>(r * p.columns);
    float v = tile.mix[i][m] / sqrtf(squares / width + p.norm_eps);
    int kind = m < r ? 0 : m < 2 * r ? 1 : 2;
    v = v * p.scale[kind] + p.base[m];
    if (kind == 0) v = kl::sigmoid(v) + p.eps;
    if (kind == 1) v = 2.0f * kl::sigmoid(v);
    tile.mix[i][m] = v;
  }
  kl::sync();
}

// Softmax of a row, or division by its sum; `step` 1 for rows, R for columns.
KL_DEVICE void hyper_normalise(float* v, int n, int step, bool softmax, float eps) {
  float sum = softmax ? 0.0f : eps, top = v[0];
  if (softmax) {
    for (int k = 1; k < n; ++k) top = kl::max_of(top, v[k * step]);
    for (int k = 0; k < n; ++k) v[k * step] = kl::exp_accurate(v[k * step] - top);
  }
  for (int k = 0; k < n; ++k) sum += v[k * step];
  for (int k = 0; k < n; ++k) v[k * step] = v[k * step] / sum + (softmax ? eps : 0.0f);
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

// limits: vgprs 128, lds 4096
template <class T>
KL_KERNEL(kHyperThreads)
hyper_kernel(HyperArgs<T> p) {
  KL_SHARED(HyperTile, tile, );
  int64_t tiles = (p.rows + kHyperTile - 1) / kHyperTile;
  for (int64_t n = kl::block(); n < tiles; n += kl::blocks()) {
    int64_t row0 = n * kHyperTile;
    if (p.a) {
      for (int i = 0; i < kHyperTile && row0 + i < p.rows; ++i)
        for (int64_t c = kl::thread(); c < p.columns; c += kl::threads())
          hyper_post_column(p, row0 + i, c);
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
  for (int64_t n = kl::block() * kl::threads() + kl::thread(); n < p.rows * p.columns; n += step)
    hyper_post_column(p, n / p.columns, n % p.columns);
}

template <class T>
HyperArgs<T> hyper_args(const Tensor& x, const HyperWeights& w, const HyperParams& p,
                        const Tensor& y) {
  HyperArgs<T> a = {};
  a.x = view<T>(x);
  a.y = view<T>(y);
  a.fn = view<float>(w.fn);
  a.base = static_cast<const float*>(w.base.data);
  a.scale = static_cast<const float*>(w.scale.data);
  a.rows = x.shape[0];
  a.streams = static_cast<int>(x.shape[1]);
  a.columns = x.shape[2];
  a.mixes = static_cast<int>(w.fn.shape[0]);
  a.iterations = p.sinkhorn_iters;
  a.norm_eps = p.norm_eps;
  a.eps = p.eps;
  return a;
}

inline void check_hyper(const char* op, const Tensor& x, const HyperWeights& w, int64_t mixes,
                        const Tensor& y) {
  int64_t r = x.shape[1], c = x.shape[2];
  HADAL_CHECK(r >= 1 && r <= kHyperStreams,
              std::string("[") + op + "] x " + x.describe() + ", at most 8 streams are supported");
  expect_shape(op, "fn", w.fn, {mixes, r * c});
  expect_shape(op, "base", w.base, {mixes});
  expect_shape(op, "y", y, {x.shape[0], c});
  expect_dtype(op, "y", y, x.dtype);
  for (const Tensor* f : {&w.fn, &w.base, &w.scale}) expect_dtype(op, "weights", *f, DType::kF32);
}

void hyper_post_pre(GpuStream s, const Tensor& a, const Tensor& x, const HyperWeights& w,
                    const HyperParams& p, const Tensor& y, const Tensor& post, const Tensor& comb) {
  int64_t rows = x.shape[0], r = x.shape[1], tiles = (rows + kHyperTile - 1) / kHyperTile;
  check_hyper("hyper_pre", x, w, 2 * r + r * r, y);
  expect_shape("hyper_pre", "scale", w.scale, {3});
  expect_shape("hyper_pre", "post", post, {rows, r});
  expect_shape("hyper_pre", "comb", comb, {rows, r, r});
  if (!a.empty()) expect_shape("hyper_post_pre", "a", a, {rows, x.shape[2]});
  with_activation("hyper_pre", x.dtype, [&](auto type) {
    using T = decltype(type);
    HyperArgs<T> args = hyper_args<T>(x, w, p, y);
    args.a = view<T>(a);
    args.post = view<float>(post);
    args.comb = view<float>(comb);
    kl::launch(hyper_kernel<T>, {kl::grid(s, tiles)}, kHyperThreads, 0, s, args);
  });
}

void hyper_pre(GpuStream s, const Tensor& x, const HyperWeights& w, const HyperParams& p,
               const Tensor& y, const Tensor& post, const Tensor& comb) {
  hyper_post_pre(s, {}, x, w, p, y, post, comb);
}

void hyper_head(GpuStream s, const Tensor& x, const HyperWeights& w, const HyperParams& p,
                const Tensor& y) {
  check_hyper("hyper_head", x, w, x.shape[1], y);
  expect_shape("hyper_head", "scale", w.scale, {1});
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
