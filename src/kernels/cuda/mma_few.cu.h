// Matrix products on tensor cores for up to some 32 rows of x (batched decode), bound by reading
// the weight once. 16 rows of W stand where mma has its 16 rows, so no lane is idle at one row of
// x; the warp loads them straight into fragments, 4 KB before it uses a byte. Up to eight warps of
// a block share K and add their parts in order, as W's shape says: a row of y depends on its row
// of x alone. Contract: kernels/linear.h; what is supported: mma_linear.h.
//
// Cost on an H200: W / 4.5 TB/s + about 2 us, while the instructions per weight stay below 6.5
// (FP8) and 3.5 (FP4). FP8 x FP8 needs 0.5 to decode W, 1/8 mma and 0.1 to load per 8 rows; FP4
// needs 2.4 to decode. x costs 1/16 of its decoding per weight and row.
#pragma once

#include "kernels/cuda/mma_fragments.cu.h"

namespace hadal::KL_TARGET {

inline constexpr int kMmaFewThreads = 256, kMmaFewWarps = kMmaFewThreads / 32;
inline constexpr int kMmaFewPitch = 20;         // 16 rows of W and 4, so that no banks meet
inline constexpr int64_t kMmaFewEnough = 2048;  // warps that fill a card
inline constexpr int64_t kMmaFewGuess = 4;      // experts that surely have rows
inline constexpr int64_t kMmaFewBlocks = 1056;  // that share the experts

struct MmaFewArgs : LinearArgs {
  int64_t x_bytes, w_bytes;  // from row to row
  int ways_bits;             // 2^ways_bits warps share the columns of a row of W
  int units;                 // blocks of work in a group
};

// One lane's places: rows lane / 4 and lane / 4 + 8 of W, row lane / 4 of each eight rows of x, all
// at the run of its quarter of a step.
template <int kTiles>
struct MmaFewRows {
  const char* w[2];
  int64_t n[2];
  const char* x[kTiles];
  const float* x_scale[kTiles];
};
template <int kTiles>
using MmaFewSums = float[kTiles][4];

// Adds one run of both rows of W.
template <class X, class W, int kTiles>
KL_DEVICE void mma_few_run(const uint32_t (&w)[2][kRun<W> / W::kPerWord],
                           const uint32_t (&multiplier)[2], const char* const (&x)[kTiles],
                           MmaFewSums<kTiles>& sums) {
  constexpr int kUnit = kUnitProducts<X>;
  KL_UNROLL
  for (int q0 = 0; q0 < kRun<W> / 4; q0 += kUnit) {
    Bits128 unit[kTiles];
    KL_UNROLL
    for (int j = 0; j < kTiles; ++j) unit[j] = reinterpret_cast<const Bits128*>(x[j])[q0 / kUnit];
    KL_UNROLL
    for (int q = 0; q < kUnit; ++q) {
      uint32_t top[2], bottom[2];
      w_fragment<X, W>(w[0], q0 + q, multiplier[0], top);
      w_fragment<X, W>(w[1], q0 + q, multiplier[1], bottom);
      uint32_t a[4] = {top[0], bottom[0], top[1], bottom[1]};
      KL_UNROLL
      for (int j = 0; j < kTiles; ++j) {
        uint32_t b[2];
        x_fragment<X, W>(unit[j], q, b);
        mma<kMath<X, W>>(sums[j], a, b);
      }
    }
  }
}

// What a lane has loaded of a step.
template <class W>
struct MmaFewStep {
  uint32_t w[kRuns<W>][2][kRun<W> / W::kPerWord];
  float scale[2];          // FP8
  uint32_t multiplier[2];  // FP4
};

template <class W, int kTiles>
KL_DEVICE void mma_few_load(const MmaFewArgs& a, int64_t group, const MmaFewRows<kTiles>& rows,
                            int step, MmaFewStep<W>& s) {
  constexpr int kUnits = kRunBytes<W, W> / 16;
  KL_UNROLL
  for (int r = 0; r < 2; ++r) {
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

// Adds one step, times its scales.
template <class X, class W, int kTiles>
KL_DEVICE void mma_few_step(const MmaFewRows<kTiles>& rows, const MmaFewStep<W>& s, int step,
                            MmaFewSums<kTiles>& total) {
  constexpr bool kScales = X::kPerWord == 4 || W::kPerWord == 4;
  float x_scale[kTiles];
  KL_UNROLL
  for (int j = 0; j < kTiles; ++j) {
    x_scale[j] = 1;
    if constexpr (X::kPerWord == 4) x_scale[j] = rows.x_scale[j][step];
  }
  MmaFewSums<kTiles> part = {};
  MmaFewSums<kTiles>& sums = kScales ? part : total;
  KL_UNROLL
  for (int h = 0; h < kRuns<W>; ++h) {
    const char* x[kTiles];
    KL_UNROLL
    for (int j = 0; j < kTiles; ++j)
      x[j] = rows.x[j] + step * kStepBytes<X> + h * 4 * kRunBytes<X, W>;
    mma_few_run<X, W, kTiles>(s.w[h], s.multiplier, x, sums);
  }
  if constexpr (kScales) {
    KL_UNROLL
    for (int j = 0; j < kTiles; ++j) {
      KL_UNROLL
      for (int i = 0; i < 4; ++i) {
        // The scale of column i % 2 of this lane's sums is with the lane of that row of x.
        float of_x = x_scale[j];
        if constexpr (X::kPerWord == 4)
          of_x = kl::shfl(x_scale[j], kl::thread() % 4 * 8 + i % 2 * 4);
        total[j][i] = fmaf(part[j][i] * kSumUnit<W>, of_x * s.scale[i / 2], total[j][i]);
      }
    }
  }
}

template <class X, class W, int kTiles>
KL_DEVICE void mma_few_dot(const MmaFewArgs& a, int64_t group, const MmaFewRows<kTiles>& rows,
                           int share, MmaFewSums<kTiles>& total) {
  // A round is eight loads of 16 bytes, one to four steps; with many sums they come in halves.
  constexpr int kSteps = 4 / (kRuns<W> * kRunBytes<W, W> / 16);
  constexpr int kAtOnce = kTiles > 1 && kSteps > 1 ? kSteps / 2 : kSteps;
  int steps = static_cast<int>(a.k) / kStepColumns;
  KL_UNROLL_BY(1)
  for (int first = share * kSteps; first < steps; first += kSteps << a.ways_bits) {
    KL_UNROLL_BY(1)
    for (int s0 = first; s0 < first + kSteps; s0 += kAtOnce) {
      MmaFewStep<W> step[kAtOnce] = {};
      KL_UNROLL
      for (int u = 0; u < kAtOnce; ++u)
        if (s0 + u < steps) mma_few_load<W, kTiles>(a, group, rows, s0 + u, step[u]);
      KL_UNROLL
      for (int u = 0; u < kAtOnce; ++u)
        if (s0 + u < steps) mma_few_step<X, W, kTiles>(rows, step[u], s0 + u, total);
    }
  }
  if constexpr (X::kPerWord != 4 && W::kPerWord == 8) {
    KL_UNROLL
    for (int i = 0; i < kTiles * 4; ++i) total[i / 4][i % 4] *= kSumUnit<W>;
  }
}

// Rows [m0, m0 + 8 kTiles) of y below `end`, columns n0.. of the block's warps.
template <class X, class W, int kTiles>
KL_DEVICE void mma_few_pass(const MmaFewArgs& a, int64_t group, int64_t m0, int64_t end, int64_t n0,
                            float* part) {
  int warp = kl::thread() / 32, ways = 1 << a.ways_bits, row = kl::thread() % 32 / 4;
  int t = kl::thread() % 4;
  MmaFewRows<kTiles> rows;
  KL_UNROLL
  for (int r = 0; r < 2; ++r) {
    int64_t n = n0 + (warp >> a.ways_bits) * 16 + row + 8 * r;
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
  MmaFewSums<kTiles> total = {};
  mma_few_dot<X, W, kTiles>(a, group, rows, warp & (ways - 1), total);
  float* mine = part + warp * kTiles * 8 * kMmaFewPitch;
  KL_UNROLL
  for (int i = 0; i < kTiles * 4; ++i) {
    At at = mma_c(kl::thread() % 32, i % 4);
    mine[(i / 4 * 8 + at.column) * kMmaFewPitch + at.row] = total[i / 4][i % 4];
  }
  kl::sync();
  int columns = kMmaFewWarps * 16 >> a.ways_bits;
  for (int i = kl::thread(); i < kTiles * 8 * columns; i += kl::threads()) {
    int m = i / columns, n = i % columns;
    const float* from =
        part + (n / 16 << a.ways_bits) * kTiles * 8 * kMmaFewPitch + m * kMmaFewPitch + n % 16;
    float v = 0;
    for (int s = 0; s < ways; ++s) v += from[s * kTiles * 8 * kMmaFewPitch];
    if (m0 + m < end && n0 + n < a.n) store_result(a, group, m0 + m, n0 + n, v);
  }
  kl::sync();  // the next pass overwrites `part`
}

template <class X, class W, int kTiles>
KL_KERNEL(kMmaFewThreads, 2)
mma_few_kernel(MmaFewArgs a) {
  KL_SHARED(float, part, [kMmaFewWarps * kTiles * 8 * kMmaFewPitch]);
  KL_SHARED(int32_t, list, [kMostExperts]);
  int items = a.units * (a.offsets ? experts_with_rows(a, list) : static_cast<int>(a.groups));
  int width = kMmaFewWarps * 16 >> a.ways_bits;
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
  int64_t bytes = kRuns<W> * kRunBytes<W, W> / 16;  // 16-byte loads per step and row
  int64_t rounds = (a.k / kStepColumns * bytes + 3) / 4, tiles = groups * ((a.n + 15) / 16);
  int64_t ways = 1;
  for (; ways < kMmaFewWarps && ways < rounds && tiles * ways < kMmaFewEnough; ++a.ways_bits)
    ways *= 2;
  int64_t width = kMmaFewWarps * 16 / ways;
  a.units = static_cast<int>((a.n + width - 1) / width);
  int64_t items = a.groups * a.units;
  HADAL_CHECK(items < (int64_t{1} << 30), "[mma_linear] too many rows of W");
  kl::Grid grid = {kl::grid(s, a.offsets ? std::min(items, kMmaFewBlocks) : items)};
  // Of experts' rows only the total is known here.
  bool one = a.m <= 8;
  kl::launch(one ? mma_few_kernel<X, W, 1> : mma_few_kernel<X, W, 4>, grid, kMmaFewThreads, 0, s,
             a);
}

}  // namespace hadal::KL_TARGET
