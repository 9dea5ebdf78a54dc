// Matrix products on tensor cores for up to some 32 rows of x (batched decode), bound by reading
// the weight once. 16 rows of W stand where mma has its 16 rows, so no lane is idle at one row of
// x; the warp loads them straight into fragments, 4 KB before it uses a byte. Up to eight warps of
// a block share K and add their parts in order, as W's shape says: a row of y depends on its row
// of x alone. Contract: kernels/linear.h; what is supported: mma_linear.h.
//
// Cost on an H200: W / 4.5 TB/s + about 2 us, while the instructions per weight stay well below
// 6.5 (FP8) and 3.5 (FP4). The machine code for up to eight rows has 2.4 for FP8 x FP8, 3.2 for
// BF16 x FP8 and 3.9 for FP8 x FP4, of which 2.4 decode W: FP4 is bound by them near 80 %.
//   FP8 4096 x 4096: 3.7 + 2 us          6 experts of FP4 2048 x 4096: 5.9 / 0.8 + 2 us
//   8 groups of FP8 1024 x 4096: 7.5 + 2 us
#pragma once

#include "kernels/cuda/mma_fragments.cu.h"

namespace hadal::KL_TARGET {

inline constexpr int kMmaFewThreads = 256, kMmaFewWarps = kMmaFewThreads / 32;
inline constexpr int64_t kMmaFewEnough = 2048;  // warps that fill a card
inline constexpr int64_t kMmaFewGuess = 4;      // experts that surely have rows
inline constexpr int64_t kMmaFewBlocks = 1056;  // that share the experts

struct MmaFewArgs : LinearArgs {
  int64_t x_bytes, w_bytes;  // from row to row
  int ways_bits;             // 2^ways_bits warps share the columns of a row of W
  int units;                 // blocks of work in a group
};

// Sixteens of W's rows that a warp takes: FP4's share what it costs to decode x.
template <class W>
inline constexpr int kMmaFewDown = W::kPerWord == 8 ? 2 : 1;
// Eights of x's rows in one pass over W, at most: what 128 registers hold.
template <class W>
inline constexpr int kMmaFewTiles = W::kPerWord == 8 ? 2 : 4;
template <class W>
inline constexpr int kMmaFewPitch = 16 * kMmaFewDown<W> + 4;  // of sums: so no two banks meet

// One lane's places: rows lane / 4, lane / 4 + 8, ... of W, row lane / 4 of each eight rows of x,
// all at the run of its quarter of a step.
template <class W, int kTiles>
struct MmaFewRows {
  const char* w[2 * kMmaFewDown<W>];
  int64_t n[2 * kMmaFewDown<W>];
  const char* x[kTiles];
  const float* x_scale[kTiles];
};
template <class W, int kTiles>
using MmaFewSums = float[kMmaFewDown<W>][kTiles][4];

// Is x loaded with W, before the wait for W? Where registers are left for it.
template <class X, class W, int kTiles>
inline constexpr bool kXAhead = kTiles == 1 && W::kPerWord != 8 && X::kPerWord >= W::kPerWord;

// What a lane has loaded of a step.
template <class X, class W, int kTiles>
struct MmaFewStep {
  uint32_t w[kRuns<W>][2 * kMmaFewDown<W>][kRun<W> / W::kPerWord];
  float scale[2 * kMmaFewDown<W>];          // FP8
  uint32_t multiplier[2 * kMmaFewDown<W>];  // FP4
  Bits128 x[kXAhead<X, W, kTiles> ? kStepBytes<X> / 64 : 1];
  float x_scale[kTiles];
};

// 16 bytes of run h of a row of x.
template <class X, class W>
KL_DEVICE Bits128 mma_few_x(const char* row, int step, int h, int unit) {
  return reinterpret_cast<const Bits128*>(row + step * kStepBytes<X> +
                                          h * 4 * kRunBytes<X, W>)[unit];
}

// Adds one run of the rows of W.
template <class X, class W, int kTiles>
KL_DEVICE void mma_few_run(const MmaFewRows<W, kTiles>& rows, const MmaFewStep<X, W, kTiles>& s,
                           int step, int h, MmaFewSums<W, kTiles>& sums) {
  constexpr int kUnit = kUnitProducts<X>;
  auto& w = s.w[h];
  KL_UNROLL
  for (int q0 = 0; q0 < kRun<W> / 4; q0 += kUnit) {
    Bits128 unit[kTiles];
    KL_UNROLL
    for (int j = 0; j < kTiles; ++j) {
      if constexpr (kXAhead<X, W, kTiles>)
        unit[j] = s.x[h * (kRun<W> / 4 / kUnit) + q0 / kUnit];
      else
        unit[j] = mma_few_x<X, W>(rows.x[j], step, h, q0 / kUnit);
    }
    KL_UNROLL
    for (int q = 0; q < kUnit; ++q) {
      uint32_t b[kTiles][2];
      KL_UNROLL
      for (int j = 0; j < kTiles; ++j) x_fragment<X, W>(unit[j], q, b[j]);
      KL_UNROLL
      for (int d = 0; d < kMmaFewDown<W>; ++d) {
        uint32_t top[2], bottom[2];
        w_fragment<X, W>(w[2 * d], q0 + q, s.multiplier[2 * d], top);
        w_fragment<X, W>(w[2 * d + 1], q0 + q, s.multiplier[2 * d + 1], bottom);
        uint32_t a[4] = {top[0], bottom[0], top[1], bottom[1]};
        KL_UNROLL
        for (int j = 0; j < kTiles; ++j) mma<kMath<X, W>>(sums[d][j], a, b[j]);
      }
    }
  }
}

template <class X, class W, int kTiles>
KL_DEVICE void mma_few_load(const MmaFewArgs& a, int64_t group, const MmaFewRows<W, kTiles>& rows,
                            int step, MmaFewStep<X, W, kTiles>& s) {
  constexpr int kUnits = kRunBytes<W, W> / 16, kXUnits = kRunBytes<X, W> / 16;
  KL_UNROLL
  for (int j = 0; j < kTiles; ++j) {
    s.x_scale[j] = 1;
    if constexpr (X::kPerWord == 4) s.x_scale[j] = rows.x_scale[j][step];
  }
  if constexpr (kXAhead<X, W, kTiles>) {
    KL_UNROLL
    for (int i = 0; i < kRuns<W> * kXUnits; ++i)
      s.x[i] = mma_few_x<X, W>(rows.x[0], step, i / kXUnits, i % kXUnits);
  }
  KL_UNROLL
  for (int r = 0; r < 2 * kMmaFewDown<W>; ++r) {
    KL_UNROLL
    for (int h = 0; h < kRuns<W>; ++h) {
      const char* from = rows.w[r] + step * kStepBytes<W> + h * 4 * kRunBytes<W, W>;
      KL_UNROLL
      for (int u = 0; u < kUnits; ++u) {
        Bits128 v = load_once(from + u * 16);
        KL_UNROLL
        for (int i = 0; i < 4; ++i) s.w[h][r][u * 4 + i] = v.word[i];
      }
    }
    s.scale[r] = 1;
    s.multiplier[r] = 0;
    if constexpr (W::kPerWord == 4) s.scale[r] = fp8_w_scale(a, group, rows.n[r], step);
    if constexpr (W::kPerWord == 8)
      s.multiplier[r] = fp4_multiplier(fp4_w_scale(a, group, rows.n[r], step, kl::thread() % 4));
  }
}

// Adds one step, times its scales. In fp32, so that what a tensor core drops of a long sum does not
// add up.
template <class X, class W, int kTiles>
KL_DEVICE void mma_few_step(const MmaFewRows<W, kTiles>& rows, const MmaFewStep<X, W, kTiles>& s,
                            int step, MmaFewSums<W, kTiles>& total) {
  MmaFewSums<W, kTiles> part = {};
  KL_UNROLL
  for (int h = 0; h < kRuns<W>; ++h) mma_few_run<X, W, kTiles>(rows, s, step, h, part);
  KL_UNROLL
  for (int j = 0; j < kTiles; ++j) {
    float of_x[2] = {1, 1};
    if constexpr (X::kPerWord == 4) {  // with the lanes of the rows of x that these columns are
      of_x[0] = kl::shfl(s.x_scale[j], kl::thread() % 4 * 8);
      of_x[1] = kl::shfl(s.x_scale[j], kl::thread() % 4 * 8 + 4);
    }
    KL_UNROLL
    for (int i = 0; i < kMmaFewDown<W> * 4; ++i) {
      int d = i / 4, e = i % 4;
      total[d][j][e] =
          fmaf(part[d][j][e] * kSumUnit<W>, of_x[e % 2] * s.scale[2 * d + e / 2], total[d][j][e]);
    }
  }
}

template <class X, class W, int kTiles>
KL_DEVICE void mma_few_dot(const MmaFewArgs& a, int64_t group, const MmaFewRows<W, kTiles>& rows,
                           int share, MmaFewSums<W, kTiles>& total) {
  // A round is eight loads of 16 bytes, one to four steps; with many sums they come in halves.
  constexpr int kSteps = 4 / (kMmaFewDown<W> * kRuns<W> * kRunBytes<W, W> / 16);
  constexpr int kAtOnce = kTiles > 1 && kSteps > 1 ? kSteps / 2 : kSteps;
  int steps = static_cast<int>(a.k) / kStepColumns;
  KL_UNROLL_BY(1)
  for (int first = share * kSteps; first < steps; first += kSteps << a.ways_bits) {
    KL_UNROLL_BY(1)
    for (int s0 = first; s0 < first + kSteps; s0 += kAtOnce) {
      MmaFewStep<X, W, kTiles> step[kAtOnce] = {};
      KL_UNROLL
      for (int u = 0; u < kAtOnce; ++u)
        if (s0 + u < steps) mma_few_load<X, W, kTiles>(a, group, rows, s0 + u, step[u]);
      KL_UNROLL
      for (int u = 0; u < kAtOnce; ++u)
        if (s0 + u < steps) mma_few_step<X, W, kTiles>(rows, step[u], s0 + u, total);
    }
  }
}

// Rows [m0, m0 + 8 kTiles) of y below `end`, columns n0.. of the block's warps.
template <class X, class W, int kTiles>
KL_DEVICE void mma_few_pass(const MmaFewArgs& a, int64_t group, int64_t m0, int64_t end, int64_t n0,
                            float* part) {
  int warp = kl::thread() / 32, ways = 1 << a.ways_bits, row = kl::thread() % 32 / 4;
  int t = kl::thread() % 4;
  constexpr int kTall = 16 * kMmaFewDown<W>, kPitch = kMmaFewPitch<W>, kPart = kTiles * 8 * kPitch;
  MmaFewRows<W, kTiles> rows;
  KL_UNROLL
  for (int r = 0; r < 2 * kMmaFewDown<W>; ++r) {
    int64_t n = n0 + (warp >> a.ways_bits) * kTall + row + 8 * r;
    rows.n[r] = n < a.n ? n : a.n - 1;  // read again, not written
    rows.w[r] = a.w.data + group * a.w.group + rows.n[r] * a.w_bytes + t * kRunBytes<W, W>;
  }
  KL_UNROLL
  for (int j = 0; j < kTiles; ++j) {
    int64_t m = m0 + j * 8 + row < end ? m0 + j * 8 + row : end - 1;
    if (a.rows) m = a.rows[m];
    rows.x[j] = a.x.data + group * a.x.group + m * a.x_bytes + t * kRunBytes<X, W>;
    if constexpr (X::kPerWord == 4) rows.x_scale[j] = a.x_scale.at(m);
  }
  MmaFewSums<W, kTiles> total = {};
  mma_few_dot<X, W, kTiles>(a, group, rows, warp & (ways - 1), total);
  KL_UNROLL
  for (int i = 0; i < kMmaFewDown<W> * kTiles * 4; ++i) {
    int d = i / 4 / kTiles, j = i / 4 % kTiles, e = i % 4;
    At at = mma_c(kl::thread() % 32, e);
    part[warp * kPart + (j * 8 + at.column) * kPitch + d * 16 + at.row] = total[d][j][e];
  }
  kl::sync();
  int columns = kMmaFewWarps * kTall >> a.ways_bits;
  for (int i = kl::thread(); i < kTiles * 8 * columns; i += kl::threads()) {
    int m = i / columns, n = i % columns;
    const float* from = part + (n / kTall << a.ways_bits) * kPart + m * kPitch + n % kTall;
    float v = 0;
    for (int s = 0; s < ways; ++s) v += from[s * kPart];
    if (m0 + m < end && n0 + n < a.n) store_result(a, group, m0 + m, n0 + n, v);
  }
  kl::sync();  // the next pass overwrites `part`
}

template <class X, class W, int kTiles>
KL_KERNEL(kMmaFewThreads, 2)
mma_few_kernel(MmaFewArgs a) {
  KL_SHARED(float, part, [kMmaFewWarps * kTiles * 8 * kMmaFewPitch<W>]);
  KL_SHARED(int32_t, list, [kMostExperts]);
  int items = a.units * (a.offsets ? experts_with_rows(a, list) : static_cast<int>(a.groups));
  int width = kMmaFewWarps * 16 * kMmaFewDown<W> >> a.ways_bits;
  for (int i = static_cast<int>(kl::block()); i < items; i += static_cast<int>(kl::blocks())) {
    int64_t group = i / a.units, n0 = static_cast<int64_t>(i % a.units) * width, m = 0, end = a.m;
    if (a.offsets) {
      group = list[group];
      m = a.offsets[group];
      end = a.offsets[group + 1];
    }
    for (; m < end; m += kTiles * 8) {
      if (kTiles == 1 || end - m <= 8)
        mma_few_pass<X, W, 1>(a, group, m, end, n0, part);
      else
        mma_few_pass<X, W, kTiles>(a, group, m, end, n0, part);
    }
  }
}

template <class X, class W>
void launch_mma_few(GpuStream s, const LinearArgs& problem) {
  MmaFewArgs a = {problem, problem.x.stride * dtype_size(problem.x.dtype),
                  problem.w.stride * dtype_size(problem.w.dtype), 0, 0};
  int64_t groups = a.offsets ? std::min(a.groups, kMmaFewGuess) : a.groups;
  constexpr int kTall = 16 * kMmaFewDown<W>;
  int64_t loads = kMmaFewDown<W> * kRuns<W> * kRunBytes<W, W> / 16;  // half of a step's
  int64_t rounds = (a.k / kStepColumns * loads + 3) / 4;
  int64_t tiles = groups * ((a.n + kTall - 1) / kTall);
  int64_t ways = 1;
  for (; ways < kMmaFewWarps && ways < rounds && tiles * ways < kMmaFewEnough; ++a.ways_bits)
    ways *= 2;
  int64_t width = kMmaFewWarps * kTall / ways;
  a.units = static_cast<int>((a.n + width - 1) / width);
  int64_t items = a.groups * a.units;
  HADAL_CHECK(items < (int64_t{1} << 30), "[mma_linear] too many rows of W");
  kl::Grid grid = {kl::grid(s, a.offsets ? std::min(items, kMmaFewBlocks) : items)};
  // Of experts' rows only the total is known here.
  bool one = a.m <= 8;
  kl::launch(one ? mma_few_kernel<X, W, 1> : mma_few_kernel<X, W, kMmaFewTiles<W>>, grid,
             kMmaFewThreads, 0, s, a);
}

}  // namespace hadal::KL_TARGET
