// Rotary positions against double precision, both pair layouts, forward and inverse, with
// strided heads and in place.
#include "gpu/reference.h"

namespace hadal {
namespace {

using namespace reference;

TEST(Rope, AnglesOfLargePositions) {
  for (auto m : machines()) {
    Arena arena;
    Tensor positions = arena.poison(DType::kI32, {5}), freqs = arena.poison(DType::kF32, {37});
    int32_t p[5] = {0, 1, 4095, 163839, 1048575};
    for (int i = 0; i < 5; ++i) set(positions, p[i], i);
    for (int i = 0; i < 37; ++i) set(freqs, std::pow(10000.0, -i / 37.0), i);
    Tensor angles = arena.poison(DType::kF32, {5, 37, 2});
    target::rope_angles(on(m), positions.at<int32_t>(), freqs, angles);
    Doubles want;
    for (int t = 0; t < 5; ++t)
      for (int i = 0; i < 37; ++i) {
        float angle = static_cast<float>(p[t]) * static_cast<float>(get(freqs, i));
        want.push_back(std::cos(double{angle}));
        want.push_back(std::sin(double{angle}));
      }
    expect_close(angles, want, 1e-7, 1e-12, describe(m));
  }
}

class Rope : public testing::TestWithParam<std::tuple<DType, RopePairs, bool>> {};

TEST_P(Rope, RotatesPairs) {
  auto [type, pairs, inverse] = GetParam();
  for (auto m : machines()) {
    Arena arena;
    int64_t rows = 5, heads = 3, half = 17;
    // Heads are wider than what is rotated, as the tail of a query is.
    Tensor wide = arena.normal(type, {rows, heads, 2 * half + 8}, 2);
    Tensor x = wide.slice(2, 8, 2 * half + 8), y = arena.poison(type, {rows, heads, 2 * half}, 1);
    Tensor angles = arena.normal(DType::kF32, {rows, half, 2});
    Doubles want(rows * heads * 2 * half);
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < half; ++i) {
          bool adjacent = pairs == RopePairs::kAdjacent;
          int64_t p = adjacent ? 2 * i : i, q = adjacent ? 2 * i + 1 : i + half;
          double c = get(angles, t, i, 0), s = get(angles, t, i, 1) * (inverse ? -1 : 1);
          double* out = &want[(t * heads + h) * 2 * half];
          out[p] = get(x, t, h, p) * c - get(x, t, h, q) * s;
          out[q] = get(x, t, h, p) * s + get(x, t, h, q) * c;
        }
    target::rope(on(m), x, angles, pairs, inverse, y);
    expect_close(y, want, rounding(type), 1e-6, describe(m));
    target::rope(on(m), x, angles, pairs, inverse, x);
    expect_same(x, y, "in place");
    EXPECT_TRUE(arena.padding_untouched());
  }
}

INSTANTIATE_TEST_SUITE_P(All, Rope,
                         testing::Combine(testing::Values(DType::kF32, DType::kBF16),
                                          testing::Values(RopePairs::kAdjacent, RopePairs::kHalves),
                                          testing::Bool()));

}  // namespace
}  // namespace hadal
