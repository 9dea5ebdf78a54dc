// A copy of the mHC kernel's projection and maps (kernels/gpu/hyper.cu.h) with faults seeded on
// request: the faults that published kernels have had. For the tests of the tests alone; with
// Fault::kNone it computes post and comb as the real one does.
#pragma once

#include "kernels/gpu/hyper.cu.h"

namespace hadal::broken {

enum class Fault {
  kNone,
  kNoLaneGuard,  // a wide warp's upper lanes store too, over the partial sums of the next warp
  kNoBarrier,    // partial sums are read before all warps have written them
};

// One row more than the warps, so that the last warp's stray stores stay inside.
struct Tile {
  float part[fiber::kHyperWarps + 1][fiber::kHyperTile * fiber::kHyperMixes];
  fiber::HyperTile rest;
};

template <Fault kFault>
void project(const fiber::HyperArgs<float>& p, int64_t row0, int first, Tile& tile) {
  namespace kl = fiber::kl;
  using namespace fiber;
  float sum[kHyperTile * kHyperMixes] = {}, squares[kHyperTile] = {};
  for (int j = 0; j < p.streams; ++j)
    for (int64_t c = kl::thread(); c < p.columns; c += kl::threads())
      for (int i = 0; i < kHyperTile; ++i) {
        float v = row0 + i < p.rows ? *p.x.at(row0 + i, j, c) : 0.0f;
        squares[i] += v * v;
        for (int m = 0; m < kHyperMixes; ++m)
          if (first + m < p.mixes)
            sum[i * kHyperMixes + m] += v * *p.fn.at(first + m, j * p.columns + c);
      }
  float total = kl::warp_sums(sum);
  int lane = kl::lane();
  bool guard = kFault == Fault::kNoLaneGuard || lane < kHyperTile * kHyperMixes;
  if (guard && row0 + lane / kHyperMixes < p.rows) (&tile.part[kl::warp()][0])[lane] = total;
  if (first > 0) return;
  for (int i = 0; i < kHyperTile; ++i) {
    float all = kl::warp_sum(squares[i]);
    if (lane == 0 && row0 + i < p.rows) tile.rest.squares[kl::warp()][i] = all;
  }
}

template <Fault kFault>
void kernel(fiber::HyperArgs<float> p) {
  namespace kl = fiber::kl;
  using namespace fiber;
  KL_SHARED(Tile, tile, );
  for (int64_t n = kl::block(); n * kHyperTile < p.rows; n += kl::blocks()) {
    int64_t row0 = n * kHyperTile;
    for (int first = 0; first < p.mixes; first += kHyperMixes) {
      project<kFault>(p, row0, first, tile);
      if (kFault != Fault::kNoBarrier) kl::sync();
      int i = kl::thread() / kHyperMixes, m = first + kl::thread() % kHyperMixes;
      if (i < kHyperTile && row0 + i < p.rows && m < p.mixes) {
        float sum = 0;
        for (int w = 0; w < kl::warps(); ++w) sum += tile.part[w][kl::thread()];
        tile.rest.mix[i][m] = sum;
      }
      kl::sync();
    }
    hyper_gates(p, row0, tile.rest);
    hyper_sinkhorn(p, row0, tile.rest);
    for (int i = 0; i < kHyperTile && row0 + i < p.rows; ++i)
      for (int m = p.streams + kl::thread(); m < p.mixes; m += kl::threads()) {
        int k = m - 2 * p.streams;
        if (k < 0)
          *p.post.at(row0 + i, m - p.streams) = tile.rest.mix[i][m];
        else
          *p.comb.at(row0 + i, k / p.streams, k % p.streams) = tile.rest.mix[i][m];
      }
    kl::sync();
  }
}

inline void hyper_maps(GpuStream s, Fault fault, const Tensor& x, const HyperWeights& w,
                       const HyperParams& p, const Tensor& post, const Tensor& comb) {
  namespace kl = fiber::kl;
  auto args = fiber::hyper_args<float>(x, w, p, x);
  args.post = view<float>(post);
  args.comb = view<float>(comb);
  auto* body = fault == Fault::kNone          ? kernel<Fault::kNone>
               : fault == Fault::kNoLaneGuard ? kernel<Fault::kNoLaneGuard>
                                              : kernel<Fault::kNoBarrier>;
  int64_t tiles = (args.rows + fiber::kHyperTile - 1) / fiber::kHyperTile;
  kl::launch(body, {kl::grid(s, tiles)}, fiber::kHyperThreads, 0, s, args);
}

}  // namespace hadal::broken
