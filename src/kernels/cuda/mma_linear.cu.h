// Launchers of the tensor core products: the formats become templates, the number of rows chooses
// the kernel.
#pragma once

#include "kernels/cuda/mma_few.cu.h"
#include "kernels/cuda/mma_linear.h"
#include "kernels/cuda/mma_tile.cu.h"
#include "kernels/cuda/mma_turned.cu.h"

namespace hadal::KL_TARGET {

inline constexpr int64_t kMmaFewRows = 32;  // of x, at most, for the kernel of few rows

// `rows` of y, in all experts.
inline void launch_mma(GpuStream s, const Activation& x, const Weight& w, const LinearArgs& a,
                       int64_t rows) {
  std::string why = mma_linear_supports(x, w);
  HADAL_CHECK(why.empty(), "[mma_linear] " + why);
  HADAL_CHECK(a.x.group % 16 == 0 && a.w.group % 16 == 0 && a.groups <= kMostExperts,
              "[mma_linear] groups at odd addresses, or more than " + std::to_string(kMostExperts));
  if (rows == 0 || a.n == 0) return;
  bool few = (a.offsets ? (rows + a.groups - 1) / a.groups : rows) <= kMmaFewRows;
  auto launch = [&](auto x_format, auto w_format) {
    if (few)
      launch_mma_few<decltype(x_format), decltype(w_format)>(s, a);
    else
      launch_mma_tile<decltype(x_format), decltype(w_format)>(s, a, rows);
  };
  auto with_w = [&](auto x_format) {
    if (w.fp8())
      launch(x_format, AsFp8<uint8_t>{});  // of either type of scale
    else if (w.fp4())
      launch(x_format, AsFp4{});
    else
      launch(x_format, AsBF16{});
  };
  if (x.data.dtype == DType::kF8E4M3)
    with_w(AsFp8<float>{});
  else
    with_w(AsBF16{});
}

void mma_linear(GpuStream s, const Activation& x, const Weight& w, const Tensor& y) {
  launch_mma(s, x, w, linear_problem(x, w, y), x.data.shape[0]);
}

void mma_linear_pair(GpuStream s, const Activation& x, const Weight& w0, const Weight& w1,
                     const Tensor& y0, const Tensor& y1) {
  launch_mma(s, x, w0, pair_problem(x, {w0, w1}, y0, y1), x.data.shape[0]);
}

void mma_grouped_linear(GpuStream s, const Activation& x, const int32_t* rows,
                        const int32_t* offsets, std::span<const Weight> experts, const Tensor& y) {
  launch_mma(s, x, experts[0], grouped_problem(x, rows, offsets, experts, y), y.shape[0]);
}

void mma_batched_linear(GpuStream s, const Tensor& x, std::span<const Weight> w, const Tensor& y) {
  Tensor rows(x.data, x.dtype, {x.shape[0], x.shape[2]});
  rows.stride[0] = x.stride[0];
  launch_mma(s, {rows, {}}, w[0], batched_problem(x, w, y, false), x.shape[0]);
}

void mma_batched_linear_transposed(GpuStream s, const Tensor& x, std::span<const Weight> w,
                                   const Tensor& y) {
  std::string why = mma_transposed_supports(x, w[0]);
  HADAL_CHECK(why.empty(), "[mma_linear] " + why);
  LinearArgs a = batched_problem(x, w, y, true);
  HADAL_CHECK(a.w.group % 16 == 0 && a.row0_group % 16 == 0, "[mma_linear] heads at odd addresses");
  if (w[0].fp8())
    launch_mma_turned<AsFp8<uint8_t>>(s, a);  // of either type of scale
  else
    launch_mma_turned<AsBF16>(s, a);
}

}  // namespace hadal::KL_TARGET
