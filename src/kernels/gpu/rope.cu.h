// Rotary positions: one thread per pair. The sine and cosine of the fp32 angle are taken in double:
// angles reach a million radians, where the argument reduction decides the result. Portable GPU
// kernels (kl.h); contract in kernels/rope.h.
#pragma once

#include "kernels/cpu/element.h"
#include "kernels/gpu/kl.h"
#include "kernels/gpu/launchers.h"

namespace hadal::KL_TARGET {

inline constexpr int kRopeThreads = 256;

struct AnglesArgs {
  const int32_t* positions;
  const float* freqs;
  View<float> angles;
  int64_t rows, half;
};

// limits: vgprs 64, lds 0
KL_KERNEL(kRopeThreads) rope_angles_kernel(AnglesArgs a) {
  int64_t step = kl::blocks() * kl::threads();
  for (int64_t n = kl::block() * kl::threads() + kl::thread(); n < a.rows * a.half; n += step) {
    int64_t t = n / a.half, i = n % a.half;
    double angle = static_cast<float>(a.positions[t]) * a.freqs[i];
    *a.angles.at(t, i, 0) = static_cast<float>(cos(angle));
    *a.angles.at(t, i, 1) = static_cast<float>(sin(angle));
  }
}

template <class T>
struct RopeArgs {
  View<T> x, y;
  View<float> angles;
  int64_t rows, heads, half;
  bool adjacent, inverse;
};

// limits: vgprs 64, lds 0
template <class T>
KL_KERNEL(kRopeThreads)
rope_kernel(RopeArgs<T> a) {
  int64_t step = kl::blocks() * kl::threads(), items = a.rows * a.heads * a.half;
  for (int64_t n = kl::block() * kl::threads() + kl::thread(); n < items; n += step) {
    int64_t i = n % a.half, h = n / a.half % a.heads, t = n / a.half / a.heads;
    int64_t first = a.adjacent ? 2 * i : i, second = a.adjacent ? 2 * i + 1 : i + a.half;
    float c = *a.angles.at(t, i, 0), s = *a.angles.at(t, i, 1);
    if (a.inverse) s = -s;
    float p = load(*a.x.at(t, h, first)), q = load(*a.x.at(t, h, second));
    store(*a.y.at(t, h, first), p * c - q * s);
    store(*a.y.at(t, h, second), p * s + q * c);
  }
}

void rope_angles(GpuStream s, const int32_t* positions, const Tensor& freqs, const Tensor& angles) {
  int64_t rows = angles.shape[0], half = freqs.shape[0];
  expect_shape("rope_angles", "angles", angles, {rows, half, 2});
  expect_dtype("rope_angles", "angles", angles, DType::kF32);
  expect_dtype("rope_angles", "freqs", freqs, DType::kF32);
  int64_t blocks = (rows * half + kRopeThreads - 1) / kRopeThreads;
  kl::launch(rope_angles_kernel, {kl::grid(s, blocks)}, kRopeThreads, 0, s,
             AnglesArgs{positions, freqs.at<const float>(), view<float>(angles), rows, half});
}

void rope(GpuStream s, const Tensor& x, const Tensor& angles, RopePairs pairs, bool inverse,
          const Tensor& y) {
  int64_t rows = x.shape[0], heads = x.shape[1], half = x.shape[2] / 2;
  expect_shape("rope", "y", y, {rows, heads, 2 * half});
  expect_shape("rope", "angles", angles, {rows, half, 2});
  expect_dtype("rope", "angles", angles, DType::kF32);
  expect_dtype("rope", "y", y, x.dtype);
  expect_adjacent("rope", "x", x);
  expect_adjacent("rope", "y", y);
  int64_t blocks = (rows * heads * half + kRopeThreads - 1) / kRopeThreads;
  with_activation("rope", x.dtype, [&](auto type) {
    using T = decltype(type);
    kl::launch(rope_kernel<T>, {kl::grid(s, blocks)}, kRopeThreads, 0, s,
               RopeArgs<T>{view<T>(x), view<T>(y), view<float>(angles), rows, heads, half,
                           pairs == RopePairs::kAdjacent, inverse});
  });
}

}  // namespace hadal::KL_TARGET
