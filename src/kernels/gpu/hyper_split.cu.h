// mHC for few tokens: the columns of a token are cut into up to 128 slices, a function of the width
// alone. The first kernel takes a slice of up to eight tokens: it applies the pending post to its
// columns of the streams and leaves the slice's part of every mix and of the squares. The second
// adds the slices, always in the same order, and makes the gates; its blocks take a part of y each,
// one more per token makes post and comb, so that Sinkhorn's many short steps delay nothing else. A
// token's bits depend on that token alone. Portable GPU kernels (kl.h); contract in
// kernels/hyper.h.
#pragma once

#include "kernels/gpu/hyper_maps.cu.h"
#include "kernels/gpu/kl.h"
#include "kernels/gpu/launchers.h"
#include "kernels/gpu/vector16.cu.h"

namespace hadal::KL_TARGET {

inline constexpr int kHyperSplitThreads = 256;
inline constexpr int kHyperSlices = 128;  // at most
inline constexpr int kHyperNarrow = 32;   // columns of a slice, at least
inline constexpr int kHyperHeld = 64;     // columns whose streams a block holds at once
inline constexpr int kHyperTokens = 8;    // of a block
inline constexpr int kHyperLines = 4;     // sums of a warp for each token: mixes, or the squares
inline constexpr int kHyperQuads = 2;     // four columns each, that a lane loads of fn at once
inline constexpr int kHyperPiece = 4 * kHyperSplitThreads;  // columns of y of a block

template <class T>
struct HyperSplitArgs {
  HyperArgs<T> of;
  float* sums;          // [rows, mixes + 1, kHyperSlices]: parts of the mixes, then of the squares
  int slices, width;    // columns of a slice
  int pieces;           // blocks per token of the second kernel
  bool whole, whole_x;  // rows of fn, rows of x and y, are whole vectors
};

template <int kMost>
struct HyperSplitTile {
  Vector16 stream[kHyperTokens][kMost * kHyperHeld / 4];
};

// Columns that a block works on: [begin, end), the streams of `chunk` of them side by side.
struct HyperSplitRange {
  int64_t row0;
  int tokens, begin, end, chunk;
};

using HyperSplitWeights = float[kHyperLines][kHyperQuads][4];

// The weights of this lane: of lines first, first + warps, ... and of quads q0 + lane,
// q0 + lane + warp size of the columns from c0 on; zeros beyond the edges.
template <class T>
KL_DEVICE void hyper_split_weights(const HyperSplitArgs<T>& a, const HyperSplitRange& r, int first,
                                   int c0, int q0, HyperSplitWeights& f) {
  int across = r.chunk / 4, columns = static_cast<int>(a.of.columns);
  KL_UNROLL
  for (int s = 0; s < kHyperQuads; ++s) {
    int q = q0 + s * kl::warp_size() + kl::lane();
    int j = q / across, c = c0 + q % across * 4;
    KL_UNROLL
    for (int i = 0; i < kHyperLines; ++i) {
      int line = first + i * kl::warps();
      bool inside = j < a.of.streams && c < r.end && line < a.of.mixes;
      const float* from = a.of.fn.at(line, int64_t{j} * columns + c);
      Vector16 v = {};
      if (inside && a.whole) v = *vectors_at(from);
      unpack(v, f[i][s]);
      if (!inside || a.whole) continue;
      KL_UNROLL
      for (int k = 0; k < 4; ++k)
        if (c + k < r.end) f[i][s][k] = from[k];
    }
  }
}

// The streams of the columns from c0 on into shared memory, zeros beyond the edge; with `post`
// after the pending post, which is written too. A thread writes and later reads the same columns.
template <class T, int kMost>
KL_DEVICE void hyper_split_streams(const HyperSplitArgs<T>& a, const HyperSplitRange& r, int c0,
                                   bool post, HyperSplitTile<kMost>& tile) {
  KL_UNROLL_BY(1)
  for (int n = kl::thread(); n < r.tokens * r.chunk; n += kHyperSplitThreads) {
    int i = n / r.chunk, c = n % r.chunk;
    float next[kHyperStreams] = {};
    if (c0 + c < r.end && post) hyper_post_column<kMost>(a.of, r.row0 + i, c0 + c, next);
    if (c0 + c < r.end && !post) {
      KL_UNROLL
      for (int j = 0; j < kMost; ++j)
        if (j < a.of.streams) next[j] = load(*a.of.x.at(r.row0 + i, j, c0 + c));
    }
    float* to = reinterpret_cast<float*>(tile.stream[i]);
    KL_UNROLL
    for (int j = 0; j < kMost; ++j)
      if (j < a.of.streams) to[j * r.chunk + c] = next[j];
  }
  kl::sync();
}

// The sum of the products of the held columns: in lane i * 4 + l of token i, line l of this warp.
template <class T, int kMost>
KL_DEVICE float hyper_split_add(const HyperSplitArgs<T>& a, const HyperSplitRange& r, int first,
                                int c0, const HyperSplitTile<kMost>& tile, HyperSplitWeights& f) {
  float sum[kHyperTokens * kHyperLines] = {};
  int quads = a.of.streams * r.chunk / 4, step = kHyperQuads * kl::warp_size();
  KL_UNROLL_BY(1)
  for (int q0 = 0; q0 < quads; q0 += step) {
    if (q0 > 0) hyper_split_weights(a, r, first, c0, q0, f);
    KL_UNROLL
    for (int s = 0; s < kHyperQuads; ++s) {
      int q = q0 + s * kl::warp_size() + kl::lane();
      if (q >= quads) continue;
      KL_UNROLL
      for (int i = 0; i < kHyperTokens; ++i) {
        if (i >= r.tokens) continue;
        float x[4];
        unpack(tile.stream[i][q], x);
        KL_UNROLL
        for (int l = 0; l < kHyperLines; ++l) {
          bool squares = first + l * kl::warps() == a.of.mixes;
          KL_UNROLL
          for (int k = 0; k < 4; ++k)
            sum[i * kHyperLines + l] += x[k] * (squares ? x[k] : f[l][s][k]);
        }
      }
    }
  }
  kl::sync();  // the next columns overwrite these
  return kl::warp_sums(sum);
}

// limits: vgprs 160, lds 16384
template <class T, int kMost>
KL_KERNEL(kHyperSplitThreads, kMost == 4 ? 2 : 1)
hyper_split_kernel(HyperSplitArgs<T> a) {
  KL_SHARED(HyperSplitTile<kMost>, tile, );
  int tiles = static_cast<int>((a.of.rows + kHyperTokens - 1) / kHyperTokens);
  int lines = a.of.mixes + 1, step = static_cast<int>(kl::blocks());
  for (int n = static_cast<int>(kl::block()); n < tiles * a.slices; n += step) {
    int slice = n % a.slices, columns = static_cast<int>(a.of.columns);
    HyperSplitRange r = {int64_t{n / a.slices} * kHyperTokens, kHyperTokens, slice * a.width,
                         slice * a.width + a.width, a.width < kHyperHeld ? a.width : kHyperHeld};
    if (a.of.rows - r.row0 < r.tokens) r.tokens = static_cast<int>(a.of.rows - r.row0);
    if (r.end > columns) r.end = columns;
    KL_UNROLL_BY(1)
    for (int pass = 0; pass < lines; pass += kl::warps() * kHyperLines) {
      int first = pass + kl::warp();
      float total = 0;
      KL_UNROLL_BY(1)
      for (int c0 = r.begin; c0 < r.end; c0 += r.chunk) {
        HyperSplitWeights f;
        hyper_split_weights(a, r, first, c0, 0, f);  // on their way while the streams are made
        hyper_split_streams(a, r, c0, a.of.a && pass == 0, tile);
        total += hyper_split_add(a, r, first, c0, tile, f);
      }
      int i = kl::lane() / kHyperLines, line = first + kl::lane() % kHyperLines * kl::warps();
      // The upper half of a wide warp repeats the sums: its i is not below 8.
      if (i < r.tokens && line < lines)
        a.sums[((r.row0 + i) * lines + line) * kHyperSlices + slice] = total;
    }
  }
}

// sums[k] of line(k) of token t for k < n: the slices are added in the same order always. A warp
// takes up to four at once. Ends with a barrier.
template <class T, class Line>
KL_DEVICE void hyper_split_sums(const HyperSplitArgs<T>& a, int64_t t, int n, Line&& line,
                                float* sums) {
  KL_UNROLL_BY(1)
  for (int k0 = kl::warp(); k0 < n; k0 += kHyperLines * kl::warps()) {
    float v[kHyperLines];
    KL_UNROLL
    for (int i = 0; i < kHyperLines; ++i) {
      int k = k0 + i * kl::warps(), slice = kl::lane() * 4;
      v[i] = 0;
      if (k >= n || slice >= a.slices) continue;
      float x[4];
      unpack(*vectors_at(a.sums + (t * (a.of.mixes + 1) + line(k)) * kHyperSlices + slice), x);
      KL_UNROLL
      for (int j = 0; j < 4; ++j) v[i] += slice + j < a.slices ? x[j] : 0.0f;
    }
    for (int m = kl::warp_size() / 2; m > 0; m /= 2) {
      KL_UNROLL
      for (int i = 0; i < kHyperLines; ++i) v[i] += kl::shfl_xor(v[i], m);
    }
    KL_UNROLL
    for (int i = 0; i < kHyperLines; ++i)
      if (kl::lane() == 0 && k0 + i * kl::warps() < n) sums[k0 + i * kl::warps()] = v[i];
  }
  kl::sync();
}

// The piece of y from column `begin` on.
template <class T>
KL_DEVICE void hyper_split_collapse(const HyperSplitArgs<T>& a, int64_t t, int64_t begin,
                                    float* sums) {
  const HyperArgs<T>& p = a.of;
  int64_t column = begin + kl::thread() * 4;
  bool inside = a.whole_x && column < p.columns;
  FourOf<T> held[kHyperStreams];
  HyperGate gates[kHyperStreams];
  KL_UNROLL
  for (int j = 0; j < kHyperStreams; ++j) {  // on their way while the sums are made
    held[j] = {};
    if (j < p.streams) gates[j] = hyper_gate_of(p, j);
    if (inside && j < p.streams)
      held[j] = *reinterpret_cast<const FourOf<T>*>(p.x.at(t, j, column));
  }
  hyper_split_sums(
      a, t, p.streams + 1, [&](int k) { return k < p.streams ? k : p.mixes; }, sums);
  float gate[kHyperStreams];
  KL_UNROLL
  for (int j = 0; j < kHyperStreams; ++j)
    gate[j] = j < p.streams ? hyper_gate(p, j, sums[j], sums[p.streams], gates[j]) : 0.0f;
  if (inside) {
    float y[4] = {};
    KL_UNROLL
    for (int j = 0; j < kHyperStreams; ++j) {
      if (j >= p.streams) continue;
      float x[4];
      unpack(held[j], x);
      KL_UNROLL
      for (int k = 0; k < 4; ++k) y[k] += gate[j] * x[k];
    }
    *reinterpret_cast<FourOf<T>*>(p.y.at(t, column)) = pack_four<T>(y);
  }
  int64_t end = begin + kHyperPiece < p.columns ? begin + kHyperPiece : p.columns;
  for (int64_t c = begin + kl::thread(); !a.whole_x && c < end; c += kHyperSplitThreads) {
    float y = 0;
    KL_UNROLL
    for (int j = 0; j < kHyperStreams; ++j)
      if (j < p.streams) y += gate[j] * load(*p.x.at(t, j, c));
    store(*p.y.at(t, c), y);
  }
}

// s[i] <- 1 / s[i] of four sums of Sinkhorn, through one reciprocal: four take three times as long
// as the products. The sums add up to about 4 and none is below eps, so nothing underflows.
KL_DEVICE void hyper_split_reciprocals(float (&s)[4]) {
  float low = s[0] * s[1], high = s[2] * s[3], all = kl::reciprocal_fast(low * high);
  float a = all * high, b = all * low;  // 1 / low, 1 / high
  float r[4] = {a * s[1], a * s[0], b * s[3], b * s[2]};
  KL_UNROLL
  for (int i = 0; i < 4; ++i) s[i] = r[i];
}

// Divides the rows of v by their sums, or its columns.
template <bool kRows>
KL_DEVICE void hyper_split_normalise(float (&v)[4][4], float eps) {
  float s[4];
  KL_UNROLL
  for (int i = 0; i < 4; ++i)
    s[i] = kRows ? v[i][0] + v[i][1] + (v[i][2] + v[i][3]) + eps
                 : v[0][i] + v[1][i] + (v[2][i] + v[3][i]) + eps;
  hyper_split_reciprocals(s);
  KL_UNROLL
  for (int i = 0; i < 16; ++i) v[i / 4][i % 4] *= s[kRows ? i / 4 : i % 4];
}

// Sinkhorn of four streams in one thread's registers: a step is some 50 cycles of latency. The
// first step is a softmax of the rows.
template <class T>
KL_DEVICE void hyper_split_sinkhorn(const HyperArgs<T>& p, float (&v)[4][4]) {
  if (p.iterations == 0) return;
  KL_UNROLL
  for (int j = 0; j < 4; ++j) hyper_normalise(v[j], 4, 1, true, p.eps);
  hyper_split_normalise<false>(v, p.eps);
  KL_UNROLL_BY(1)
  for (int iteration = 1; iteration < p.iterations; ++iteration) {
    hyper_split_normalise<true>(v, p.eps);
    hyper_split_normalise<false>(v, p.eps);
  }
}

// post and comb of token t.
template <class T>
KL_DEVICE void hyper_split_maps(const HyperSplitArgs<T>& a, int64_t t, float* sums, float* comb) {
  const HyperArgs<T>& p = a.of;
  int r = p.streams, m = r + kl::thread(), n = kl::thread();
  HyperGate gate = m < p.mixes ? hyper_gate_of(p, m) : HyperGate{};
  hyper_split_sums(
      a, t, p.mixes - r + 1, [&](int k) { return r + k; }, sums);
  if (m < p.mixes) {
    float v = hyper_gate(p, m, sums[m - r], sums[p.mixes - r], gate);
    if (m < 2 * r)
      *p.post.at(t, m - r) = v;
    else
      comb[m - 2 * r] = v;
  }
  kl::sync();
  if (r == 4) {
    if (n == 0) {
      float v[4][4];
      KL_UNROLL
      for (int i = 0; i < 16; ++i) v[i / 4][i % 4] = comb[i];
      hyper_split_sinkhorn(p, v);
      KL_UNROLL
      for (int i = 0; i < 16; ++i) comb[i] = v[i / 4][i % 4];
    }
    kl::sync();
  } else {
    for (int iteration = 0; iteration < p.iterations; ++iteration) {
      if (n < r) hyper_normalise(comb + n * r, r, 1, iteration == 0, p.eps);
      kl::sync();
      if (n < r) hyper_normalise(comb + n, r, r, false, p.eps);
      kl::sync();
    }
  }
  if (n < r * r) *p.comb.at(t, n / r, n % r) = comb[n];
}

// limits: vgprs 128, lds 1024
template <class T>
KL_KERNEL(kHyperSplitThreads)
hyper_split_end_kernel(HyperSplitArgs<T> a) {
  KL_SHARED(float, sums, [kHyperAll + 1]);
  KL_SHARED(float, comb, [kHyperStreams * kHyperStreams]);
  int all = static_cast<int>(a.of.rows) * a.pieces, step = static_cast<int>(kl::blocks());
  for (int n = static_cast<int>(kl::block()); n < all; n += step) {
    int t = n / a.pieces, piece = n % a.pieces - (a.of.head ? 0 : 1);
    if (piece < 0)
      hyper_split_maps(a, t, sums, comb);
    else
      hyper_split_collapse(a, t, int64_t{piece} * kHyperPiece, sums);
    kl::sync();  // the next piece overwrites the sums
  }
}

int64_t hyper_split_workspace(int64_t rows, int64_t mixes) {
  return rows * (mixes + 1) * kHyperSlices * 4;
}

template <class T>
void launch_hyper_split(GpuStream s, const HyperArgs<T>& of, const Tensor& fn, bool whole_x,
                        const Tensor& workspace) {
  int64_t wanted = hyper_split_workspace(of.rows, of.mixes);
  HADAL_CHECK(workspace.bytes() >= wanted && reinterpret_cast<uintptr_t>(workspace.data) % 16 == 0,
              "[hyper_split] workspace " + workspace.describe() + ", wanted " +
                  std::to_string(wanted) + " bytes at a multiple of 16");
  HADAL_CHECK(of.columns * of.streams < int64_t{1} << 30 && of.rows < int64_t{1} << 20,
              "[hyper_split] too many columns or tokens");
  HyperSplitArgs<T> a = {};
  a.of = of;
  a.sums = workspace.at<float>();
  int64_t width = ((of.columns + kHyperSlices - 1) / kHyperSlices + 3) / 4 * 4;
  a.width = static_cast<int>(width < kHyperNarrow ? kHyperNarrow : width);
  a.slices = static_cast<int>((of.columns + a.width - 1) / a.width);
  a.pieces = static_cast<int>((of.columns + kHyperPiece - 1) / kHyperPiece) + (of.head ? 0 : 1);
  a.whole = rows_of_vectors(fn) && of.columns % 4 == 0;
  a.whole_x = whole_x;
  int64_t tiles = (of.rows + kHyperTokens - 1) / kHyperTokens;
  auto* kernel = of.streams <= 4 ? hyper_split_kernel<T, 4> : hyper_split_kernel<T, kHyperStreams>;
  kl::launch(kernel, {kl::grid(s, tiles * a.slices)}, kHyperSplitThreads, 0, s, a);
  kl::launch(hyper_split_end_kernel<T>, {kl::grid(s, of.rows * a.pieces)}, kHyperSplitThreads, 0, s,
             a);
}

void hyper_post_pre_split(GpuStream s, const Tensor& a, const Tensor& x, const HyperWeights& w,
                          const HyperParams& p, const Tensor& y, const Tensor& post,
                          const Tensor& comb, const Tensor& workspace) {
  check_hyper_post_pre(a, x, w, y, post, comb);
  bool whole = rows_of_vectors(x) && rows_of_vectors(y);
  with_activation("hyper_pre_split", x.dtype, [&](auto type) {
    auto args = hyper_args<decltype(type)>(a, x, w, p, y, post, comb);
    launch_hyper_split(s, args, w.fn, whole, workspace);
  });
}

void hyper_pre_split(GpuStream s, const Tensor& x, const HyperWeights& w, const HyperParams& p,
                     const Tensor& y, const Tensor& post, const Tensor& comb,
                     const Tensor& workspace) {
  hyper_post_pre_split(s, {}, x, w, p, y, post, comb, workspace);
}

void hyper_head_split(GpuStream s, const Tensor& x, const HyperWeights& w, const HyperParams& p,
                      const Tensor& y, const Tensor& workspace) {
  check_hyper_head(x, w, y);
  bool whole = rows_of_vectors(x) && rows_of_vectors(y);
  with_activation("hyper_head_split", x.dtype, [&](auto type) {
    auto args = hyper_args<decltype(type)>(x, w, p, y);
    args.head = true;
    launch_hyper_split(s, args, w.fn, whole, workspace);
  });
}

}  // namespace hadal::KL_TARGET
