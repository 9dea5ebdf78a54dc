// Matrix products on tensor cores for many rows (prefill, large decode batches): tiles of kM rows
// of x and kN of W. Steps of 128 columns, as they lie in memory, go to shared memory by
// asynchronous copies some steps ahead, and are decoded on the way to registers; a step's sums are
// scaled in fp32 where codes have block scales. Contract: kernels/linear.h; what is supported:
// mma_linear.h.
//
// Per 128 columns a warp of the large tiles multiplies 64 x 32 outputs: 128 mma, and 1030 (FP8 x
// FP8), 990 (BF16 x FP8) or 1590 (FP8 x FP4) instructions in all, two warps per scheduler. At one
// instruction per clock that is 8 to 12 clocks per mma where the tensor core needs 4 on an H200: at
// most half (FP4: a third) of its 790 TFLOP/s in bf16.
#pragma once

#include "kernels/cuda/mma_fragments.cu.h"

namespace hadal::KL_TARGET {

inline constexpr int kMmaTileThreads = 256;
inline constexpr int kMmaAcross = 4, kMmaDown = 2;  // warps of a block
inline constexpr int64_t kMmaTileBlocks = 1056;     // that share the experts

struct MmaTileArgs : LinearArgs {
  int64_t x_bytes, w_bytes;  // from row to row
  int across, down;          // tiles of a group; of experts, `down` is not known on the host
};

template <class X, class W, int kM, int kN>
struct MmaTile {
  // A warp's: W stands where mma has 16 rows, since its decoded words may be put into any
  // registers, while those of x may lie as they were loaded.
  static constexpr int kRowTiles = kM / kMmaDown / 8, kColumnTiles = kN / kMmaAcross / 16;
  static constexpr int kXBytes = kM * kStepBytes<X>, kWBytes = kN * kStepBytes<W>;
  static constexpr int kStageBytes = kXBytes + kWBytes + (X::kPerWord == 4 ? kM * 4 : 0);
  // Small tiles fit any card since sm_80, two blocks of them one of sm_90; large ones sm_80's 163
  // KB.
  static constexpr int kShared = kM == 128 ? 152 * 1024 : 94 * 1024, kMost = kM == 128 ? 4 : 6;
  static constexpr int kFit = kShared / kStageBytes, kStages = kFit < kMost ? kFit : kMost;
  static_assert(kStages >= 2);
  static constexpr bool kScales = X::kPerWord == 4 || W::kPerWord == 4;

  using Sums = float[kRowTiles][kColumnTiles][4];

  // Of W, for one step and what this lane has of it.
  struct Scales {
    float fp8[2];                           // columns of y before and from `turn` on
    uint32_t multiplier[2 * kColumnTiles];  // FP4: of rows lane / 4 and lane / 4 + 8 of each tile
  };

  const MmaTileArgs& a;
  int64_t group, m0, end, n0;
  char* stages;
  const int32_t* x_row;
  int64_t turn = 0;  // the first column of y under the second row of W's scales

  KL_DEVICE void load(int step) const {
    char* stage = stages + step % kStages * kStageBytes;
    constexpr int kXUnits = kStepBytes<X> / 16, kWUnits = kStepBytes<W> / 16;
    const char* x = a.x.data + group * a.x.group + step * kStepBytes<X>;
    KL_UNROLL_BY(4)
    for (int i = kl::thread(); i < kM * kXUnits; i += kMmaTileThreads) {
      int row = i / kXUnits, unit = i % kXUnits;
      copy_async16(stage + row * kStepBytes<X> + shared_unit<X, W>(row, unit) * 16,
                   x + x_row[row] * a.x_bytes + unit * 16);
    }
    const char* w = a.w.data + group * a.w.group + step * kStepBytes<W>;
    KL_UNROLL_BY(4)
    for (int i = kl::thread(); i < kN * kWUnits; i += kMmaTileThreads) {
      int row = i / kWUnits, unit = i % kWUnits;
      int64_t n = n0 + row < a.n ? n0 + row : a.n - 1;  // read again, not written
      copy_async16(stage + kXBytes + row * kStepBytes<W> + shared_unit<W, W>(row, unit) * 16,
                   w + n * a.w_bytes + unit * 16);
    }
    if constexpr (X::kPerWord == 4) {
      if (kl::thread() < kM)
        copy_async4(stage + kXBytes + kWBytes + kl::thread() * 4,
                    a.x_scale.at(x_row[kl::thread()], step));
    }
  }

  // Column of y that this warp's tile j of columns begins with, and row of its tile i of rows.
  KL_DEVICE static int column(int j) {
    return (kl::thread() / 32 % kMmaAcross * kColumnTiles + j) * 16;
  }
  KL_DEVICE static int row(int i) { return (kl::thread() / 32 / kMmaAcross * kRowTiles + i) * 8; }
  // Row of W, from n0 on, that is the lane's number i of two in each tile of columns.
  KL_DEVICE static int w_row(int i) { return column(i / 2) + i % 2 * 8 + kl::thread() % 32 / 4; }

  KL_DEVICE void load_scales(int step, Scales& s) const {
    s.fp8[0] = s.fp8[1] = 1;
    if constexpr (W::kPerWord == 4) {
      s.fp8[0] = fp8_w_scale(a, group, n0, step);
      s.fp8[1] = turn < n0 + kN && turn < a.n ? fp8_w_scale(a, group, turn, step) : s.fp8[0];
    }
    KL_UNROLL
    for (int i = 0; i < 2 * kColumnTiles; ++i) {
      s.multiplier[i] = 0;
      if constexpr (W::kPerWord == 8) {
        int64_t n = n0 + w_row(i) < a.n ? n0 + w_row(i) : a.n - 1;
        s.multiplier[i] = fp4_multiplier(fp4_w_scale(a, group, n, step, kl::thread() % 4));
      }
    }
  }

  // Adds one step.
  KL_DEVICE void multiply(const char* stage, const Scales& scales, Sums& sums) const {
    constexpr int kXUnits = kRunBytes<X, W> / 16, kWUnits = kRunBytes<W, W> / 16;
    constexpr int kUnit = kUnitProducts<X>;
    int t = kl::thread() % 4;
    KL_UNROLL
    for (int h = 0; h < kRuns<W>; ++h) {
      uint32_t w[2 * kColumnTiles][kRun<W> / W::kPerWord];
      KL_UNROLL
      for (int j = 0; j < 2 * kColumnTiles; ++j) {
        KL_UNROLL
        for (int u = 0; u < kWUnits; ++u) {
          int unit = shared_unit<W, W>(w_row(j), (h * 4 + t) * kWUnits + u);
          auto v = *reinterpret_cast<const Bits128*>(stage + kXBytes + w_row(j) * kStepBytes<W> +
                                                     unit * 16);
          KL_UNROLL
          for (int i = 0; i < 4; ++i) w[j][u * 4 + i] = v.word[i];
        }
      }
      KL_UNROLL
      for (int u = 0; u < kXUnits; ++u) {
        Bits128 x[kRowTiles];
        KL_UNROLL
        for (int i = 0; i < kRowTiles; ++i) {
          int r = row(i) + kl::thread() % 32 / 4;
          int unit = shared_unit<X, W>(r, (h * 4 + t) * kXUnits + u);
          x[i] = *reinterpret_cast<const Bits128*>(stage + r * kStepBytes<X> + unit * 16);
        }
        KL_UNROLL
        for (int q = 0; q < kUnit; ++q) {
          uint32_t of_w[kColumnTiles][4];
          KL_UNROLL
          for (int j = 0; j < kColumnTiles; ++j) {
            uint32_t top[2], bottom[2];
            w_fragment<X, W>(w[2 * j], u * kUnit + q, scales.multiplier[2 * j], top);
            w_fragment<X, W>(w[2 * j + 1], u * kUnit + q, scales.multiplier[2 * j + 1], bottom);
            of_w[j][0] = top[0], of_w[j][1] = bottom[0], of_w[j][2] = top[1],
            of_w[j][3] = bottom[1];
          }
          KL_UNROLL
          for (int i = 0; i < kRowTiles; ++i) {
            uint32_t of_x[2];
            x_fragment<X, W>(x[i], q, of_x);
            KL_UNROLL
            for (int j = 0; j < kColumnTiles; ++j) mma<kMath<X, W>>(sums[i][j], of_w[j], of_x);
          }
        }
      }
    }
  }

  // Adds one step's sums, times their scales.
  KL_DEVICE void fold(const char* stage, const Scales& scales, const Sums& part,
                      Sums& total) const {
    auto* x_scale = reinterpret_cast<const float*>(stage + kXBytes + kWBytes);
    At at = mma_c(kl::thread() % 32, 0);
    KL_UNROLL
    for (int i = 0; i < kRowTiles; ++i) {
      float of_x[2] = {1, 1};
      if constexpr (X::kPerWord == 4) {
        of_x[0] = x_scale[row(i) + at.column];
        of_x[1] = x_scale[row(i) + at.column + 1];
      }
      KL_UNROLL
      for (int j = 0; j < kColumnTiles; ++j) {
        KL_UNROLL
        for (int e = 0; e < 4; ++e) {
          int64_t n = n0 + column(j) + at.row + e / 2 * 8;
          float of_w = n < turn ? scales.fp8[0] : scales.fp8[1];
          total[i][j][e] = fmaf(part[i][j][e] * kSumUnit<W>, of_x[e % 2] * of_w, total[i][j][e]);
        }
      }
    }
  }

  KL_DEVICE void store(const Sums& total) const {
    float unit = kScales ? 1 : kSumUnit<W>;
    At at = mma_c(kl::thread() % 32, 0);
    KL_UNROLL
    for (int i = 0; i < kRowTiles * kColumnTiles * 4; ++i) {
      int e = i % 4, j = i / 4 % kColumnTiles, k = i / 4 / kColumnTiles;
      int64_t m = m0 + row(k) + at.column + e % 2, n = n0 + column(j) + at.row + e / 2 * 8;
      if (m < end && n < a.n) store_result(a, group, m, n, total[k][j][e] * unit);
    }
  }

  KL_DEVICE void run() {
    int steps = static_cast<int>(a.k) / kStepColumns;
    int64_t scaled_row = a.row0 + group * a.row0_group + n0;
    turn = n0 + kFp8Block - scaled_row % kFp8Block;
    for (int k = 0; k < kStages - 1; ++k) {
      if (k < steps) load(k);
      copies_end_group();
    }
    Sums total = {};
    Scales scales, next;
    load_scales(0, next);
    KL_UNROLL_BY(1)
    for (int k = 0; k < steps; ++k) {
      copies_wait<kStages - 2>();
      kl::sync();  // all have step k, and are done with step k - 1
      if (k + kStages - 1 < steps) load(k + kStages - 1);
      copies_end_group();
      scales = next;
      load_scales(k + 1 < steps ? k + 1 : k, next);
      const char* stage = stages + k % kStages * kStageBytes;
      if constexpr (kScales) {
        Sums part = {};
        multiply(stage, scales, part);
        fold(stage, scales, part, total);
      } else {
        multiply(stage, scales, total);
      }
    }
    copies_wait<0>();
    store(total);
  }
};

// first[e] = tiles of the experts before e; all their tiles. Ends with a barrier.
template <int kM>
KL_DEVICE int mma_tile_starts(const MmaTileArgs& a, int32_t* first) {
  constexpr int kMine = kMostExperts / kMmaTileThreads;
  int experts = static_cast<int>(a.groups);
  for (int e = kl::thread(); e < experts; e += kl::threads())
    first[e + 1] = (a.offsets[e + 1] - a.offsets[e] + kM - 1) / kM;
  if (kl::thread() == 0) first[0] = 0;
  kl::sync();
  for (int d = 1; d < experts; d *= 2) {
    int32_t sum[kMine] = {};
    KL_UNROLL
    for (int i = 0; i < kMine; ++i) {
      int e = kl::thread() + i * kMmaTileThreads;
      if (e < experts) sum[i] = first[e + 1] + (e >= d ? first[e + 1 - d] : 0);
    }
    kl::sync();
    KL_UNROLL
    for (int i = 0; i < kMine; ++i) {
      int e = kl::thread() + i * kMmaTileThreads;
      if (e < experts) first[e + 1] = sum[i];
    }
    kl::sync();
  }
  return first[experts];
}

// Tiles of rows come first, so that blocks that run at once share W.
template <class X, class W, int kM, int kN>
KL_KERNEL(kMmaTileThreads, kM == 128 ? 1 : 2)
mma_tile_kernel(MmaTileArgs a) {
  KL_DYNAMIC_SHARED(char, stages);
  KL_SHARED(int32_t, x_row, [kM]);
  KL_SHARED(int32_t, first, [kMostExperts + 1]);
  int groups = static_cast<int>(a.groups);
  int items = a.across * (a.offsets ? mma_tile_starts<kM>(a, first) : a.down * groups);
  for (int i = static_cast<int>(kl::block()); i < items; i += static_cast<int>(kl::blocks())) {
    int group = 0, down = a.down, at = i;
    int64_t begin = 0, end = a.m;
    if (a.offsets) {
      for (int above = groups; above - group > 1;) {
        int middle = (group + above) / 2;
        (first[middle] * a.across <= i ? group : above) = middle;
      }
      at = i - first[group] * a.across;
      down = first[group + 1] - first[group];
      begin = a.offsets[group];
      end = a.offsets[group + 1];
    } else {
      group = i / (a.across * down);
      at = i % (a.across * down);
    }
    int64_t m0 = begin + static_cast<int64_t>(at % down) * kM;
    int64_t n0 = static_cast<int64_t>(at / down) * kN;
    for (int r = kl::thread(); r < kM; r += kl::threads()) {
      int64_t m = m0 + r < end ? m0 + r : end - 1;  // read again, not written
      x_row[r] = a.rows ? a.rows[m] : static_cast<int32_t>(m);
    }
    kl::sync();
    MmaTile<X, W, kM, kN> tile = {a, group, m0, end, n0, stages, x_row};
    tile.run();  // what the next tile overwrites, all have read before that tile's first barrier
  }
}

template <class X, class W, int kM, int kN>
void launch_mma_tiles(GpuStream s, MmaTileArgs a) {
  constexpr int kBytes = MmaTile<X, W, kM, kN>::kStages * MmaTile<X, W, kM, kN>::kStageBytes;
  a.across = static_cast<int>((a.n + kN - 1) / kN);
  a.down = static_cast<int>((a.m + kM - 1) / kM);
  int64_t items = a.groups * a.across * a.down;
  HADAL_CHECK(items < (int64_t{1} << 30), "[mma_linear] too many tiles");
  allow_shared(mma_tile_kernel<X, W, kM, kN>, kBytes);
  kl::Grid grid = {kl::grid(s, a.offsets ? kMmaTileBlocks : items)};
  kl::launch(mma_tile_kernel<X, W, kM, kN>, grid, kMmaTileThreads, kBytes, s, a);
}

// `rows`: of y, in all groups of experts.
template <class X, class W>
void launch_mma_tile(GpuStream s, const LinearArgs& problem, int64_t rows) {
  MmaTileArgs a = {problem, problem.x.stride * dtype_size(problem.x.dtype),
                   problem.w.stride * dtype_size(problem.w.dtype), 0, 0};
  using Large = MmaTile<X, W, 128, 128>;
  int64_t across = (a.n + 127) / 128, of_group = a.offsets ? rows / a.groups : rows;
  int64_t tiles = a.groups * across * ((of_group + 127) / 128);
  bool fits = most_shared() >= Large::kStages * Large::kStageBytes + 8 * 1024;
  if (fits && of_group > 64 && tiles >= 128)
    launch_mma_tiles<X, W, 128, 128>(s, a);
  else
    launch_mma_tiles<X, W, 64, 64>(s, a);
}

}  // namespace hadal::KL_TARGET
