// The gated activation and the sum over a token's experts.
#include "kernels/moe_combine.h"

#include <limits>

#include "kernels/cpu/element.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/dispatch/kernels.h"

namespace hadal::cpu {

void swiglu(Context& ctx, const Tensor& gate, const Tensor& up, float limit, const float* weights,
            const int32_t* pair, const int32_t* used, const Tensor& y) {
  int64_t m = gate.shape[0], n = gate.shape[1], rows = used ? *used : m;
  expect_shape("swiglu", "up", up, {m, n});
  expect_shape("swiglu", "y", y, {m, n});
  expect_dtype("swiglu", "up", up, gate.dtype);
  expect_dtype("swiglu", "y", y, gate.dtype);
  float bound = limit > 0 ? limit : std::numeric_limits<float>::infinity();
  with_activation("swiglu", gate.dtype, [&](auto type) {
    using T = decltype(type);
    const auto& loops = ctx.kernels.rows->of(type);
    // Few wide rows (decode) are cut into columns too.
    int64_t width = std::min<int64_t>(n, 512), cuts = n ? (n + width - 1) / width : 0;
    ctx.threads.run(rows * cuts, grain_of(width * 4), [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t row = i / cuts, c = i % cuts * width;
        loops.swiglu(gate.at<const T>(row, c), up.at<const T>(row, c), bound,
                     weights ? weights[pair[row]] : 1.0f, std::min(width, n - c), y.at<T>(row, c));
      }
    });
  });
}

void moe_combine(Context& ctx, const Tensor& y, const int32_t* pair, const int32_t* used, int64_t k,
                 const float* weights, const Tensor& shared, int32_t* position, const Tensor& out) {
  struct SumRow {};
  int64_t rows = out.shape[0], c = out.shape[1], m = used ? *used : y.shape[0];
  if (m > 0) expect_dtype("moe_combine", "y", y, out.dtype);
  if (!shared.empty()) expect_shape("moe_combine", "shared", shared, {rows, c});
  if (!shared.empty()) expect_dtype("moe_combine", "shared", shared, out.dtype);
  // Sorted positions ascend with the expert id, so a token's experts in ascending id are its
  // positions in ascending order.
  std::fill(position, position + rows * k, -1);
  for (int64_t i = 0; i < m; ++i) position[pair[i]] = static_cast<int32_t>(i);
  with_activation("moe_combine", out.dtype, [&](auto type) {
    using T = decltype(type);
    const auto& loops = ctx.kernels.rows->of(type);
    ctx.threads.run(rows, grain_of(c * (k + 1)), [&](int64_t begin, int64_t end, int) {
      float* sum = scratch<float, SumRow>(c);
      for (int64_t t = begin; t < end; ++t) {
        int32_t* at = position + t * k;
        std::sort(at, at + k);
        std::fill(sum, sum + c, 0.0f);
        for (int64_t j = 0; j < k; ++j)
          if (at[j] >= 0)
            loops.accumulate(y.at<const T>(at[j]), weights ? weights[pair[at[j]]] : 1.0f, c, sum);
        loops.finish(sum, shared.empty() ? nullptr : shared.at<const T>(t), c, out.at<T>(t));
      }
    });
  });
}

}  // namespace hadal::cpu
