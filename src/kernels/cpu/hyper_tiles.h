// The dot products of hyper_pre for one vector width P: a tile of tokens x maps per pass over a
// stream. Include inside the target region of P's instructions.
#pragma once

namespace hadal {
namespace {

// sums[i * stride + k] += x_i . fn_k over one stream of n columns, for kRows tokens and kMaps maps.
// Each of the sums is made in the same order whatever else the tile holds.
template <class P, int kRows, int kMaps, class T>
inline void mix_tile(const T* const* x, const float* const* fn, int64_t n, double* sums,
                     int64_t stride) {
  using V = typename P::V;
  V acc[kRows][kMaps];
  for (auto& row : acc)
    for (V& v : row) v = P::zero();
  for (int64_t c = 0; c < n; c += P::kLanes) {
    V f[kMaps];
    for (int k = 0; k < kMaps; ++k) f[k] = P::load(fn[k] + c, n - c);
    for (int i = 0; i < kRows; ++i) {
      V v = P::load(x[i] + c, n - c);
      for (int k = 0; k < kMaps; ++k) acc[i][k] = P::fmadd(v, f[k], acc[i][k]);
    }
  }
  for (int i = 0; i < kRows; ++i)
    for (int k = 0; k < kMaps; ++k) sums[i * stride + k] += P::sum(acc[i][k]);
}

// Sum of squares of one stream.
template <class P, class T>
double stream_squares(const T* x, int64_t n) {
  using V = typename P::V;
  V acc[4] = {P::zero(), P::zero(), P::zero(), P::zero()};
  for (int64_t c = 0; c < n; c += 4 * P::kLanes)
    for (int i = 0; i < 4; ++i) {
      V v = P::load(x + c + i * P::kLanes, n - c - i * P::kLanes);
      acc[i] = P::fmadd(v, v, acc[i]);
    }
  return P::sum(P::add(P::add(acc[0], acc[1]), P::add(acc[2], acc[3])));
}

// Pieces of hyper_flow.h at one instruction set.
template <class P>
struct HyperTiles {
  static constexpr int kRows = P::kMixRows, kMaps = P::kMixMaps;

  template <class T>
  static void rows_tile(const T* const* x, const float* const* fn, int64_t n, double* sums,
                        int64_t stride) {
    mix_tile<P, kRows, kMaps>(x, fn, n, sums, stride);
  }
  template <class T>
  static void one_row(const T* x, const float* const* fn, int64_t n, double* sums) {
    mix_tile<P, 1, kMaps>(&x, fn, n, sums, kMaps);
  }
  template <class T>
  static double squares(const T* x, int64_t n) {
    return stream_squares<P>(x, n);
  }
};

}  // namespace
}  // namespace hadal
