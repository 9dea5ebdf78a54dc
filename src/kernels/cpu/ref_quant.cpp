// Activation quantisation, and the round trips that simulate a quantised cache.
#include "kernels/cpu/element.h"
#include "kernels/cpu/row_quant.h"
#include "kernels/quant.h"

namespace hadal {

void quantize_fp8(Context& ctx, const Tensor& x, bool pow2, const Activation& out) {
  int64_t m = x.shape[0], k = x.shape[1], blocks = (k + kFp8Block - 1) / kFp8Block;
  expect_shape("quantize_fp8", "codes", out.data, {m, k});
  expect_dtype("quantize_fp8", "codes", out.data, DType::kF8E4M3);
  expect_shape("quantize_fp8", "scales", out.scale, {m, blocks});
  expect_dtype("quantize_fp8", "scales", out.scale, DType::kF32);
  expect_adjacent("quantize_fp8", "x", x);
  with_activation("quantize_fp8", x.dtype, [&](auto type) {
    using T = decltype(type);
    ctx.threads.run(m * blocks, grain_of(kFp8Block * 4), [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t row = i / blocks, block = i % blocks, c = block * kFp8Block;
        int64_t n = std::min(kFp8Block, k - c);
        *out.scale.at<float>(row, block) =
            quantize_fp8_block(x.at<const T>(row, c), n, pow2, out.data.at<uint8_t>(row, c));
      }
    });
  });
}

void qdq_fp8(Context& ctx, const Tensor& x, int64_t block) {
  int64_t m = x.shape[0], n = x.shape[1];
  expect_adjacent("qdq_fp8", "x", x);
  with_activation("qdq_fp8", x.dtype, [&](auto type) {
    using T = decltype(type);
    ctx.threads.run(m, grain_of(n * 4), [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) qdq_fp8_row(x.at<T>(i), n, block);
    });
  });
}

void qdq_fp4(Context& ctx, const Tensor& x) {
  int64_t m = x.shape[0], n = x.shape[1];
  HADAL_CHECK(n % kFp4Block == 0, "[qdq_fp4] x is " + x.describe() + ", not blocks of 32 columns");
  expect_adjacent("qdq_fp4", "x", x);
  with_activation("qdq_fp4", x.dtype, [&](auto type) {
    using T = decltype(type);
    ctx.threads.run(m, grain_of(n * 4), [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) qdq_fp4_row(x.at<T>(i), n);
    });
  });
}

void hadamard(Context& ctx, const Tensor& x) {
  struct Row {};
  int64_t m = x.shape[0], n = x.shape[1];
  HADAL_CHECK(n > 0 && (n & (n - 1)) == 0,
              "[hadamard] x is " + x.describe() + ", not a power of two wide");
  expect_adjacent("hadamard", "x", x);
  with_activation("hadamard", x.dtype, [&](auto type) {
    using T = decltype(type);
    ctx.threads.run(m, grain_of(n * 8), [&](int64_t begin, int64_t end, int) {
      float* v = scratch<float, Row>(n);
      for (int64_t i = begin; i < end; ++i) {
        T* row = x.at<T>(i);
        for (int64_t j = 0; j < n; ++j) v[j] = load(row[j]);
        hadamard_row(v, n);
        for (int64_t j = 0; j < n; ++j) store(row[j], v[j]);
      }
    });
  });
}

}  // namespace hadal
