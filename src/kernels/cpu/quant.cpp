// Activation quantisation, and the round trips that simulate a quantised cache.
#include "kernels/quant.h"

#include "kernels/cpu/element.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/dispatch/kernels.h"

namespace hadal::cpu {
namespace {

// f(loops, row) for every row of x.
template <class F>
void for_rows(Context& ctx, const char* op, const Tensor& x, int64_t cost, F&& f) {
  HADAL_CHECK(x.rank == 2, std::string("[") + op + "] x is " + x.describe() + ", not [M, N]");
  expect_adjacent(op, "x", x);
  with_activation(op, x.dtype, [&](auto type) {
    using T = decltype(type);
    const auto& loops = ctx.kernels.rows->of(type);
    ctx.threads.run(x.shape[0], grain_of(cost), [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) f(loops, x.at<T>(i));
    });
  });
}

}  // namespace

void quantize_fp8(Context& ctx, const Tensor& x, bool pow2, const Activation& out) {
  int64_t m = x.shape[0], k = x.shape[1], blocks = (k + kFp8Block - 1) / kFp8Block;
  expect_shape("quantize_fp8", "codes", out.data, {m, k});
  expect_dtype("quantize_fp8", "codes", out.data, DType::kF8E4M3);
  expect_shape("quantize_fp8", "scales", out.scale, {m, blocks});
  expect_dtype("quantize_fp8", "scales", out.scale, DType::kF32);
  expect_adjacent("quantize_fp8", "x", x);
  with_activation("quantize_fp8", x.dtype, [&](auto type) {
    using T = decltype(type);
    const auto& loops = ctx.kernels.rows->of(type);
    ctx.threads.run(m * blocks, grain_of(kFp8Block * 4), [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t row = i / blocks, block = i % blocks, c = block * kFp8Block;
        *out.scale.at<float>(row, block) = loops.quantize_fp8(
            x.at<const T>(row, c), std::min(kFp8Block, k - c), pow2, out.data.at<uint8_t>(row, c));
      }
    });
  });
}

void add_rms_norm_fp8(Context& ctx, const Tensor& residual, const Tensor& delta, const Tensor& w,
                      float eps, const Tensor& y, bool pow2, const Activation& out) {
  cpu::add_rms_norm(ctx, residual, delta, w, eps, y);
  cpu::quantize_fp8(ctx, y, pow2, out);
}

void qdq_fp8(Context& ctx, const Tensor& x, int64_t block) {
  int64_t n = x.shape[1];
  for_rows(ctx, "qdq_fp8", x, n * 4,
           [&](const auto& loops, auto* row) { loops.qdq_fp8(row, n, block); });
}

void qdq_fp4(Context& ctx, const Tensor& x) {
  int64_t n = x.shape[1];
  HADAL_CHECK(n % kFp4Block == 0, "[qdq_fp4] x is " + x.describe() + ", not blocks of 32 columns");
  for_rows(ctx, "qdq_fp4", x, n * 4, [&](const auto& loops, auto* row) { loops.qdq_fp4(row, n); });
}

void hadamard(Context& ctx, const Tensor& x) {
  struct Row {};
  int64_t n = x.shape[1];
  HADAL_CHECK(n > 0 && (n & (n - 1)) == 0,
              "[hadamard] x is " + x.describe() + ", not a power of two wide");
  for_rows(ctx, "hadamard", x, n * 8,
           [&](const auto& loops, auto* row) { loops.hadamard(row, n, scratch<float, Row>(n)); });
}

}  // namespace hadal::cpu
