// The product over W's other index on tensor cores: y[m, k] = sum_n x[m, n] w[n, k] for each head.
// A warp takes 16 or 32 rows of x and 8 pieces of 16 bytes of W's rows. mma wants pairs of n, which
// lie in different rows: a lane loads the same piece of four rows and pairs them as it decodes, so
// its columns 0, 1, ... belong to different products and nothing goes through shared memory.
// Contract: batched_linear_transposed of kernels/linear.h; what is supported: mma_linear.h.
#pragma once

#include "kernels/cuda/mma_fragments.cu.h"

namespace hadal::KL_TARGET {

inline constexpr int kMmaTurnedThreads = 128, kMmaTurnedWarps = kMmaTurnedThreads / 32;

struct MmaTurnedArgs : LinearArgs {
  int64_t x_bytes, w_bytes;  // from row to row
  int across, down;          // blocks of work in a group
  bool wide;                 // y's pieces of eight bf16 are at multiples of 16 bytes
};

// Columns in 16 bytes of W; columns of a warp.
template <class W>
inline constexpr int kTurnedMine = 4 * W::kPerWord;
template <class W>
inline constexpr int kTurnedWidth = 8 * kTurnedMine<W>;

// Rows of W (of a step of 16) that a lane of quarter t reads: its two pairs.
HADAL_HD constexpr int turned_row(int t, int i) { return t * 2 + i % 2 + i / 2 * 8; }

// What a lane has loaded of a step.
template <int kRowTiles>
struct TurnedStep {
  Bits128 w[4];
  uint32_t x[kRowTiles][4];
};

template <class W, int kRowTiles>
KL_DEVICE void turned_load(const MmaTurnedArgs& a, const char* w,
                           const char* const (&x)[2 * kRowTiles], int step,
                           TurnedStep<kRowTiles>& s) {
  KL_UNROLL
  for (int i = 0; i < 4; ++i)
    s.w[i] = load_once(w + (step * 16 + turned_row(kl::thread() % 4, i)) * a.w_bytes);
  KL_UNROLL
  for (int i = 0; i < kRowTiles * 4; ++i) {
    const char* from =
        x[i / 4 * 2 + i % 2] + (step * 16 + kl::thread() % 4 * 2 + i % 4 / 2 * 8) * 2;
    s.x[i / 4][i % 4] = reinterpret_cast<const Words<1>*>(from)->word[0];
  }
}

template <class W, int kRowTiles>
using TurnedSums = float[kRowTiles][kTurnedMine<W>][4];

template <class W, int kRowTiles>
KL_DEVICE void turned_step(const TurnedStep<kRowTiles>& s, TurnedSums<W, kRowTiles>& sums) {
  KL_UNROLL
  for (int i = 0; i < 4; ++i) {  // words: their columns are products
    uint32_t b[W::kPerWord][2];
    KL_UNROLL
    for (int pair = 0; pair < 2; ++pair) {
      uint32_t even = s.w[2 * pair].word[i], odd = s.w[2 * pair + 1].word[i];
      if constexpr (W::kPerWord == 2) {
        b[0][pair] = low_halves(even, odd);
        b[1][pair] = high_halves(even, odd);
      } else {
        float low[4], high[4];
        W::decode(even, low);
        W::decode(odd, high);
        KL_UNROLL
        for (int c = 0; c < 4; ++c) b[c][pair] = pack_bf16(low[c], high[c]);
      }
    }
    KL_UNROLL
    for (int c = 0; c < W::kPerWord; ++c) {
      KL_UNROLL
      for (int r = 0; r < kRowTiles; ++r)
        mma<Half::kBF16>(sums[r][i * W::kPerWord + c], s.x[r], b[c]);
    }
  }
}

// total += part * scale; part = 0.
template <class W, int kRowTiles>
KL_DEVICE void turned_fold(TurnedSums<W, kRowTiles>& part, float scale,
                           TurnedSums<W, kRowTiles>& total) {
  KL_UNROLL
  for (int r = 0; r < kRowTiles; ++r) {
    KL_UNROLL
    for (int i = 0; i < kTurnedMine<W> * 4; ++i) {
      total[r][i / 4][i % 4] = fmaf(part[r][i / 4][i % 4], scale, total[r][i / 4][i % 4]);
      part[r][i / 4][i % 4] = 0;
    }
  }
}

// Sums over steps `share`, share + kWays, ... of W's rows; those under one row of scales first.
template <class W, int kRowTiles, int kWays>
KL_DEVICE void turned_dot(const MmaTurnedArgs& a, int64_t group, int64_t m0, int64_t end, int piece,
                          int share, TurnedSums<W, kRowTiles>& total) {
  const char* w = a.w.data + group * a.w.group + piece * 16;
  const char* x[2 * kRowTiles];
  KL_UNROLL
  for (int i = 0; i < 2 * kRowTiles; ++i) {
    int64_t m = m0 + i * 8 + kl::thread() % 32 / 4;
    x[i] = a.x.data + group * a.x.group + (m < end ? m : end - 1) * a.x_bytes;
  }
  int steps = static_cast<int>(a.k) / 16,
      above = static_cast<int>((a.row0 + group * a.row0_group) % kFp8Block /
                               16);  // steps before W's under its first scale
  int under = -1;
  float scale = 0;
  TurnedSums<W, kRowTiles> part = {};
  TurnedSums<W, kRowTiles>& sums = W::kPerWord == 4 ? part : total;
  KL_UNROLL_BY(1)
  for (int s0 = share; s0 < steps; s0 += 2 * kWays) {
    TurnedStep<kRowTiles> step[2] = {};
    KL_UNROLL
    for (int u = 0; u < 2; ++u) {
      if (s0 + u * kWays < steps) turned_load<W, kRowTiles>(a, w, x, s0 + u * kWays, step[u]);
    }
    KL_UNROLL
    for (int u = 0; u < 2; ++u) {
      int s = s0 + u * kWays;
      if (s >= steps) continue;
      if (W::kPerWord == 4 && under != (s + above) / 8) {
        turned_fold<W, kRowTiles>(part, scale, total);
        under = (s + above) / 8;
        scale = fp8_w_scale(a, group, s * 16, piece * kTurnedMine<W> / kFp8Block);
      }
      turned_step<W, kRowTiles>(step[u], sums);
    }
  }
  if (W::kPerWord == 4) turned_fold<W, kRowTiles>(part, scale, total);
}

// Eight adjacent columns of a row of y.
KL_DEVICE void turned_store8(const MmaTurnedArgs& a, int64_t group, int64_t m, int64_t n,
                             const float (&v)[8]) {
  if (a.wide && n + 8 <= a.n) {
    Bits128 packed;
    KL_UNROLL
    for (int i = 0; i < 4; ++i) packed.word[i] = pack_bf16(v[2 * i], v[2 * i + 1]);
    auto* y = reinterpret_cast<BF16*>(a.y) + m * a.y_stride + group * a.y_group + n;
    *reinterpret_cast<Bits128*>(y) = packed;
    return;
  }
  KL_UNROLL
  for (int i = 0; i < 8; ++i)
    if (n + i < a.n) store_result(a, group, m, n + i, v[i]);
}

// Many rows: each warp of a block has its own 16 kRowTiles rows, and writes what its lanes hold.
template <class W, int kRowTiles>
KL_DEVICE void turned_store(const MmaTurnedArgs& a, int64_t group, int64_t m0, int64_t end,
                            int64_t n0, const TurnedSums<W, kRowTiles>& total) {
  KL_UNROLL
  for (int r = 0; r < kRowTiles; ++r) {
    KL_UNROLL
    for (int e = 0; e < 4; ++e) {
      At at = mma_c(kl::thread() % 32, e);
      int64_t m = m0 + r * 16 + at.row;
      KL_UNROLL
      for (int c = 0; c < kTurnedMine<W>; c += 8) {
        float v[8];
        KL_UNROLL
        for (int i = 0; i < 8; ++i) v[i] = total[r][c + i][e];
        if (m < end) turned_store8(a, group, m, n0 + at.column * kTurnedMine<W> + c, v);
      }
    }
  }
}

// Few rows: the warps of a block share W's rows, and add their parts in order.
template <class W>
KL_DEVICE void turned_add(const MmaTurnedArgs& a, int64_t group, int64_t m0, int64_t end,
                          int64_t n0, const TurnedSums<W, 1>& total, float* part) {
  constexpr int kPitch = kTurnedWidth<W> + 4, kPart = 16 * kPitch;  // 4: rows meet other banks
  KL_UNROLL
  for (int i = 0; i < kTurnedMine<W> * 4; ++i) {
    At at = mma_c(kl::thread() % 32, i % 4);
    part[kl::thread() / 32 * kPart + at.row * kPitch + at.column * kTurnedMine<W> + i / 4] =
        total[0][i / 4][i % 4];
  }
  kl::sync();
  for (int i = kl::thread(); i < 16 * kTurnedWidth<W>; i += kl::threads()) {
    int m = i / kTurnedWidth<W>, n = i % kTurnedWidth<W>;
    float v = 0;
    for (int s = 0; s < kMmaTurnedWarps; ++s) v += part[s * kPart + m * kPitch + n];
    if (m0 + m < end && n0 + n < a.n) store_result(a, group, m0 + m, n0 + n, v);
  }
  kl::sync();  // the next block of work overwrites `part`
}

template <class W, int kRowTiles, int kWays>
KL_KERNEL(kMmaTurnedThreads)
mma_turned_kernel(MmaTurnedArgs a) {
  constexpr int kRows = 16 * kRowTiles * kMmaTurnedWarps / kWays;
  KL_SHARED(float, part, [kWays == 1 ? 1 : kWays * 16 * (kTurnedWidth<W> + 4)]);
  int items = static_cast<int>(a.groups) * a.across * a.down, warp = kl::thread() / 32;
  int pieces = static_cast<int>(a.n) / kTurnedMine<W>;
  for (int i = static_cast<int>(kl::block()); i < items; i += static_cast<int>(kl::blocks())) {
    int group = i / (a.across * a.down), at = i % (a.across * a.down);
    int64_t m0 = static_cast<int64_t>(at % a.down) * kRows;
    int first = at / a.down * 8, piece = first + kl::thread() % 32 / 4;
    if (piece >= pieces) piece = pieces - 1;  // read again, not written
    if (kWays == 1) m0 += warp * 16 * kRowTiles;
    TurnedSums<W, kRowTiles> total = {};
    turned_dot<W, kRowTiles, kWays>(a, group, m0, a.m, piece, kWays == 1 ? 0 : warp, total);
    if constexpr (kWays == 1)
      turned_store<W, kRowTiles>(a, group, m0, a.m, first * kTurnedMine<W>, total);
    else
      turned_add<W>(a, group, m0, a.m, first * kTurnedMine<W>, total, part);
  }
}

template <class W, int kRowTiles, int kWays>
void launch_mma_turned_as(GpuStream s, MmaTurnedArgs a) {
  constexpr int kRows = 16 * kRowTiles * kMmaTurnedWarps / kWays;
  a.across = static_cast<int>((a.n + kTurnedWidth<W> - 1) / kTurnedWidth<W>);
  a.down = static_cast<int>((a.m + kRows - 1) / kRows);
  int64_t items = a.groups * a.across * a.down;
  HADAL_CHECK(items < (int64_t{1} << 30), "[mma_linear] too much work");
  kl::launch(mma_turned_kernel<W, kRowTiles, kWays>, {kl::grid(s, items)}, kMmaTurnedThreads, 0, s,
             a);
}

template <class W>
void launch_mma_turned(GpuStream s, const LinearArgs& problem) {
  MmaTurnedArgs a = {
      problem, problem.x.stride * 2, problem.w.stride * dtype_size(problem.w.dtype), 0, 0, false};
  a.wide = a.y_dtype == DType::kBF16 && reinterpret_cast<uintptr_t>(a.y) % 16 == 0 &&
           a.y_stride % 8 == 0 && a.y_group % 8 == 0;
  if (a.m == 0) return;
  if (a.m <= 32)
    launch_mma_turned_as<W, 1, kMmaTurnedWarps>(s, a);
  else
    launch_mma_turned_as<W, W::kPerWord == 2 ? 2 : 1, 1>(s, a);
}

}  // namespace hadal::KL_TARGET
