// hyper_pre for the tuned candidates: all dot products first (pieces of a few tokens and a few
// maps, so that one token's weights are read by all threads together), then the maps and the
// collapse of each token.
#pragma once

#include "kernels/cpu/hyper_mix.h"
#include "kernels/dispatch/kernels.h"

namespace hadal {

struct HyperSums {};

// Sums of maps [first, first + kMaps) of rows [begin, end), kRows at a time and then one by one.
// The last group of maps repeats its last one. sums [T, stride], zero at first.
template <class I, class T>
void mix_rows(const Tensor& x, const Tensor& fn, int64_t begin, int64_t end, int64_t first,
              double* sums, int64_t stride) {
  int64_t r = x.shape[1], c = x.shape[2], last = fn.shape[0] - 1;
  for (int64_t j = 0; j < r; ++j) {
    const float* f[I::kMaps];
    for (int64_t k = 0; k < I::kMaps; ++k)
      f[k] = fn.at<const float>(std::min(first + k, last), j * c);
    int64_t t = begin;
    for (; t + I::kRows <= end; t += I::kRows) {
      const T* v[I::kRows];
      for (int64_t i = 0; i < I::kRows; ++i) v[i] = x.at<const T>(t + i, j);
      I::rows_tile(v, f, c, sums + t * stride + first, stride);
    }
    for (; t < end; ++t) I::one_row(x.at<const T>(t, j), f, c, sums + t * stride + first);
  }
}

template <class I>
void flow_hyper_pre(Context& ctx, const Tensor& x, const HyperWeights& w, const HyperParams& p,
                    const Tensor& y, const Tensor& post, const Tensor& comb) {
  check_hyper_pre(x, w, p, y, post, comb);
  const int64_t rows = x.shape[0], c = x.shape[2], maps = w.fn.shape[0];
  const int r = static_cast<int>(x.shape[1]);
  if (rows == 0) return;
  // A row of sums: the maps padded to whole groups, then the sum of squares.
  const int64_t groups = (maps + I::kMaps - 1) / I::kMaps, squares = groups * I::kMaps;
  const int64_t stride = squares + 1, block = 4 * I::kRows, blocks = (rows + block - 1) / block;
  double* sums = scratch<double, HyperSums>(rows * stride);
  std::fill(sums, sums + rows * stride, 0.0);
  with_activation("hyper_pre", x.dtype, [&](auto type) {
    using T = decltype(type);
    ctx.threads.run(blocks * (groups + 1), grain_of(r * c * 2),
                    [&](int64_t begin, int64_t end, int) {
                      for (int64_t i = begin; i < end; ++i) {
                        int64_t t0 = i / (groups + 1) * block, t1 = std::min(rows, t0 + block);
                        int64_t g = i % (groups + 1);
                        if (g < groups) {
                          mix_rows<I, T>(x, w.fn, t0, t1, g * I::kMaps, sums, stride);
                          continue;
                        }
                        for (int64_t t = t0; t < t1; ++t)
                          for (int j = 0; j < r; ++j)
                            sums[t * stride + squares] += I::squares(x.at<const T>(t, j), c);
                      }
                    });
    ctx.threads.run(rows, grain_of(c * 2 + 4096), [&](int64_t begin, int64_t end, int) {
      float m[kMaxMaps], pre[kMaxStreams];
      for (int64_t t = begin; t < end; ++t) {
        const double* s = sums + t * stride;
        double factor = 1.0 / std::sqrt(s[squares] / static_cast<double>(r * c) + p.norm_eps);
        for (int64_t i = 0; i < maps; ++i) m[i] = static_cast<float>(s[i] * factor);
        hyper_maps(m, r, w, p, pre, post.at<float>(t), comb.at<float>(t));
        collapse(ctx.kernels.rows->of(type), x.at<const T>(t), x.stride[1], pre, r, c, y.at<T>(t));
      }
    });
  });
}

}  // namespace hadal
