// Activation quantisation and the round trips that simulate a quantised cache: one warp per block
// of columns. Hadamard: one thread block per row, in shared memory. Portable GPU kernels (kl.h);
// contract in kernels/quant.h.
#pragma once

#include "kernels/cpu/element.h"
#include "kernels/gpu/kl.h"
#include "kernels/gpu/launchers.h"
#include "kernels/gpu/row_quant.cu.h"

namespace hadal::KL_TARGET {

inline constexpr int kQuantThreads = 256;
inline constexpr int kHadamardThreads = 64;

enum class QuantMode { kCodes, kRoundTripFp8, kRoundTripFp4 };

template <class T>
struct QuantArgs {
  View<T> x;
  View<uint8_t> codes;
  View<float> scales;
  int64_t rows, columns, block;
  QuantMode mode;
  bool pow2;
};

// limits: vgprs 64, lds 0
template <class T>
KL_KERNEL(kQuantThreads)
quant_kernel(QuantArgs<T> a) {
  int64_t blocks = (a.columns + a.block - 1) / a.block, items = a.rows * blocks;
  int64_t step = kl::blocks() * kl::warps();
  for (int64_t i = kl::block() * kl::warps() + kl::warp(); i < items; i += step) {
    int64_t row = i / blocks, block = i % blocks, end = (block + 1) * a.block;
    if (end > a.columns) end = a.columns;
    int64_t first = block * a.block + kl::lane();
    float amax = 0;
    for (int64_t c = first; c < end; c += kl::warp_size())
      amax = amax_of(amax, load(*a.x.at(row, c)));
    amax = kl::warp_max(amax);
    bool fp4 = a.mode == QuantMode::kRoundTripFp4;
    float scale = fp4 ? fp4_block_scale(amax) : fp8_block_scale(amax, a.pow2);
    for (int64_t c = first; c < end; c += kl::warp_size()) {
      float v = load(*a.x.at(row, c));
      if (a.mode == QuantMode::kCodes)
        *a.codes.at(row, c) = fp8_code(v, scale);
      else
        store(*a.x.at(row, c), fp4 ? fp4_round_trip(v, scale) : fp8_round_trip(v, scale));
    }
    if (a.scales && kl::lane() == 0) *a.scales.at(row, block) = scale;
  }
}

template <class T>
struct HadamardArgs {
  View<T> x;
  int64_t rows, columns;
  float norm;
};

// limits: vgprs 64, lds 0
template <class T>
KL_KERNEL(kHadamardThreads)
hadamard_kernel(HadamardArgs<T> a) {
  KL_DYNAMIC_SHARED(float, v);
  for (int64_t row = kl::block(); row < a.rows; row += kl::blocks()) {
    for (int64_t c = kl::thread(); c < a.columns; c += kl::threads()) v[c] = load(*a.x.at(row, c));
    kl::sync();
    hadamard_shared(v, a.columns);
    for (int64_t c = kl::thread(); c < a.columns; c += kl::threads())
      store(*a.x.at(row, c), v[c] * a.norm);
    kl::sync();  // the next row overwrites v
  }
}

template <class T>
void launch_quant(GpuStream s, const QuantArgs<T>& a) {
  int64_t items = a.rows * ((a.columns + a.block - 1) / a.block);
  kl::launch(quant_kernel<T>, {kl::grid(s, (items + 3) / 4)}, kQuantThreads, 0, s, a);
}

void quantize_fp8(GpuStream s, const Tensor& x, bool pow2, const Activation& out) {
  int64_t m = x.shape[0], k = x.shape[1];
  expect_shape("quantize_fp8", "codes", out.data, {m, k});
  expect_dtype("quantize_fp8", "codes", out.data, DType::kF8E4M3);
  expect_shape("quantize_fp8", "scales", out.scale, {m, (k + kFp8Block - 1) / kFp8Block});
  expect_dtype("quantize_fp8", "scales", out.scale, DType::kF32);
  expect_adjacent("quantize_fp8", "x", x);
  with_activation("quantize_fp8", x.dtype, [&](auto type) {
    using T = decltype(type);
    launch_quant(s, QuantArgs<T>{view<T>(x), view<uint8_t>(out.data), view<float>(out.scale), m, k,
                                 kFp8Block, QuantMode::kCodes, pow2});
  });
}

void qdq_fp8(GpuStream s, const Tensor& x, int64_t block) {
  expect_adjacent("qdq_fp8", "x", x);
  with_activation("qdq_fp8", x.dtype, [&](auto type) {
    using T = decltype(type);
    launch_quant(
        s, QuantArgs<T>{
               view<T>(x), {}, {}, x.shape[0], x.shape[1], block, QuantMode::kRoundTripFp8, true});
  });
}

void qdq_fp4(GpuStream s, const Tensor& x) {
  HADAL_CHECK(x.shape[1] % kFp4Block == 0,
              "[qdq_fp4] x is " + x.describe() + ", not blocks of 32 columns");
  expect_adjacent("qdq_fp4", "x", x);
  with_activation("qdq_fp4", x.dtype, [&](auto type) {
    using T = decltype(type);
    launch_quant(
        s,
        QuantArgs<T>{
            view<T>(x), {}, {}, x.shape[0], x.shape[1], kFp4Block, QuantMode::kRoundTripFp4, true});
  });
}

void hadamard(GpuStream s, const Tensor& x) {
  int64_t m = x.shape[0], n = x.shape[1];
  HADAL_CHECK(n > 0 && (n & (n - 1)) == 0 && n <= 8192,
              "[hadamard] x is " + x.describe() + ", not a power of two up to 8192 wide");
  expect_adjacent("hadamard", "x", x);
  float norm = static_cast<float>(1.0 / std::sqrt(static_cast<double>(n)));
  with_activation("hadamard", x.dtype, [&](auto type) {
    using T = decltype(type);
    kl::launch(hadamard_kernel<T>, {kl::grid(s, m)}, kHadamardThreads, n * 4, s,
               HadamardArgs<T>{view<T>(x), m, n, norm});
  });
}

}  // namespace hadal::KL_TARGET
