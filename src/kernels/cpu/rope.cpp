// Rotary positions. The sine and cosine of the fp32 angle are taken in double: angles reach a
// million radians, where the argument reduction decides the result.
#include "kernels/rope.h"

#include "kernels/cpu/element.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/dispatch/kernels.h"

namespace hadal::cpu {
namespace {

template <class T>
void rotate_halves(const T* x, const float* angles, float sign, int64_t half, T* y) {
  for (int64_t i = 0; i < half; ++i) {
    float c = angles[2 * i], s = sign * angles[2 * i + 1];
    float a = load(x[i]), b = load(x[i + half]);
    store(y[i], a * c - b * s);
    store(y[i + half], a * s + b * c);
  }
}

}  // namespace

void rope_angles(Context& ctx, const int32_t* positions, const Tensor& freqs,
                 const Tensor& angles) {
  int64_t rows = angles.shape[0], half = freqs.shape[0];
  expect_shape("rope_angles", "angles", angles, {rows, half, 2});
  expect_dtype("rope_angles", "angles", angles, DType::kF32);
  expect_dtype("rope_angles", "freqs", freqs, DType::kF32);
  const float* f = freqs.at<const float>();
  ctx.threads.run(rows, grain_of(half * 100), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      float* out = angles.at<float>(t);
      for (int64_t i = 0; i < half; ++i) {
        double angle = static_cast<float>(positions[t]) * f[i];
        out[2 * i] = static_cast<float>(std::cos(angle));
        out[2 * i + 1] = static_cast<float>(std::sin(angle));
      }
    }
  });
}

void rope(Context& ctx, const Tensor& x, const Tensor& angles, RopePairs pairs, bool inverse,
          const Tensor& y) {
  int64_t rows = x.shape[0], heads = x.shape[1], half = x.shape[2] / 2;
  expect_shape("rope", "y", y, {rows, heads, 2 * half});
  expect_shape("rope", "angles", angles, {rows, half, 2});
  expect_dtype("rope", "angles", angles, DType::kF32);
  expect_dtype("rope", "y", y, x.dtype);
  expect_adjacent("rope", "x", x);
  expect_adjacent("rope", "y", y);
  with_activation("rope", x.dtype, [&](auto type) {
    using T = decltype(type);
    float sign = inverse ? -1.0f : 1.0f;
    auto turn =
        pairs == RopePairs::kAdjacent ? ctx.kernels.rows->of(type).rotate : &rotate_halves<T>;
    ctx.threads.run(rows * heads, grain_of(half * 4), [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t t = i / heads, h = i % heads;
        turn(x.at<const T>(t, h), angles.at<const float>(t), sign, half, y.at<T>(t, h));
      }
    });
  });
}

}  // namespace hadal::cpu
