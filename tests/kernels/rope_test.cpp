// Rotations against the check vectors of the specifications and against double precision.
#include "kernels/rope.h"

#include "kernels/op_rig.h"

namespace hadal::test {
namespace {

constexpr double kPi = 3.14159265358979323846;

// theta^(-2i/64), with YaRN where factor > 1 (spec V4 3.5, spec V3.2 3.5).
std::vector<double> frequencies(double theta, double factor, double original) {
  std::vector<double> f(32);
  auto corner = [&](double r) {
    return 64 * std::log(original / (2 * kPi * r)) / (2 * std::log(theta));
  };
  double low = std::max(std::floor(corner(32)), 0.0), high = std::min(std::ceil(corner(1)), 63.0);
  for (int i = 0; i < 32; ++i) {
    double g = std::pow(theta, -2.0 * i / 64);
    double u = std::min(std::max((i - low) / (high - low), 0.0), 1.0);
    f[i] = factor > 1 ? g / factor * u + g * (1 - u) : g;
  }
  return f;
}

Array as_array(const std::vector<double>& v) {
  Array a(DType::kF32, {static_cast<int64_t>(v.size())});
  for (size_t i = 0; i < v.size(); ++i) a.set(i, v[i]);
  return a;
}

// The 64-vector with ones at `ones`, rotated at `position`.
std::vector<double> rotate_ones(Rig& rig, const std::vector<double>& freqs, int32_t position,
                                std::vector<int> ones, RopePairs pairs) {
  Array f = as_array(freqs), angles(DType::kF32, {1, 32, 2}), x(DType::kF32, {1, 1, 64});
  x.fill([] { return 0.0; });
  for (int i : ones) x.set(i, 1);
  rope_angles(rig.ctx, &position, f.view, angles.view);
  rope(rig.ctx, x.view, angles.view, pairs, false, x.view);
  std::vector<double> y(64);
  for (int i = 0; i < 64; ++i) y[i] = x.at(i);
  return y;
}

TEST_ROWS(Rope, MatchesTheV4CheckVectors) {
  auto yarn = frequencies(160000, 16, 65536), plain = frequencies(10000, 1, 65536);
  EXPECT_NEAR(yarn[1], 0.6876560219, 1e-10);
  EXPECT_NEAR(yarn[16], 2.265625e-3, 1e-12);
  EXPECT_NEAR(yarn[31], 5.680529037e-7, 1e-15);
  auto y = rotate_ones(rig, yarn, 1000, {0, 3, 62}, RopePairs::kAdjacent);
  EXPECT_NEAR(y[0], 0.5623791, 1e-6);
  EXPECT_NEAR(y[1], 0.8268795, 1e-6);
  // Here 687.656 radians: the fp32 product has a spacing of 6e-5.
  EXPECT_NEAR(y[2], -0.3454978, 5e-5);
  EXPECT_NEAR(y[3], -0.9384196, 5e-5);
  EXPECT_NEAR(y[62], 0.9999998, 1e-6);
  EXPECT_NEAR(y[63], 0.0005681, 1e-7);
  y = rotate_ones(rig, plain, 1000, {0, 3, 62}, RopePairs::kAdjacent);
  EXPECT_NEAR(y[0], 0.5623791, 1e-6);
  EXPECT_NEAR(y[1], 0.8268795, 1e-6);
  EXPECT_NEAR(y[2], -0.8113366, 5e-5);
  EXPECT_NEAR(y[3], -0.5845793, 5e-5);
  EXPECT_NEAR(y[62], 0.9911218, 1e-6);
  EXPECT_NEAR(y[63], 0.1329573, 1e-6);
}

TEST_ROWS(Rope, MatchesTheV32CheckVectors) {
  auto f = frequencies(10000, 40, 4096);
  EXPECT_NEAR(f[15], 8.334508951e-3, 1e-12);
  EXPECT_NEAR(f[20], 7.905694150e-4, 1e-13);
  auto y = rotate_ones(rig, f, 1000, {30}, RopePairs::kAdjacent);
  EXPECT_NEAR(y[30], -0.462246839, 1e-6);
  EXPECT_NEAR(y[31], 0.886751295, 1e-6);
  y = rotate_ones(rig, f, 1000, {15}, RopePairs::kHalves);
  EXPECT_NEAR(y[15], -0.462246839, 1e-6);
  EXPECT_NEAR(y[47], 0.886751295, 1e-6);
  y = rotate_ones(rig, f, 100000, {40}, RopePairs::kAdjacent);
  EXPECT_NEAR(y[40], -0.869244040, 8e-6);
  EXPECT_NEAR(y[41], -0.494383251, 8e-6);
}

TEST_ROWS(Rope, AnglesAreTheFp32ProductEvenAtAMillion) {
  auto f = as_array(frequencies(160000, 16, 65536));
  std::vector<int32_t> positions = {0, 1, 127, 4095, 65536, 1048575};
  Array angles(DType::kF32, {6, 32, 2});
  rope_angles(rig.ctx, positions.data(), f.view, angles.view);
  for (int t = 0; t < 6; ++t)
    for (int i = 0; i < 32; ++i) {
      double angle = static_cast<float>(positions[t]) * static_cast<float>(f.at(i));
      EXPECT_NEAR(angles.at((t * 32 + i) * 2), std::cos(angle), 6.1e-8);
      EXPECT_NEAR(angles.at((t * 32 + i) * 2 + 1), std::sin(angle), 6.1e-8);
    }
}

void check_rotation(Rig& rig, DType type, RopePairs pairs, bool inverse) {
  for (int64_t r : {2, 8, 22, 64}) {
    int64_t heads = 3, rows = 4, width = r + 24;  // the rotated part of a wider head
    Array x(type, {rows, heads, width}), angles(DType::kF32, {rows, r / 2, 2});
    x.fill_normal();
    std::vector<double> theta(rows * r / 2);
    for (size_t i = 0; i < theta.size(); ++i) {
      theta[i] = normal(3);
      angles.set(2 * i, std::cos(theta[i]));
      angles.set(2 * i + 1, std::sin(theta[i]));
    }
    Array before = x;
    Tensor part = x.view.slice(2, 24, width);
    rope(rig.ctx, part, angles.view, pairs, inverse, part);
    std::vector<double> want(x.size());
    for (int64_t i = 0; i < x.size(); ++i) want[i] = before.at(i);
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < r / 2; ++i) {
          double angle = theta[t * r / 2 + i] * (inverse ? -1 : 1);
          int64_t base = (t * heads + h) * width + 24;
          int64_t ia = base + (pairs == RopePairs::kAdjacent ? 2 * i : i);
          int64_t ib = pairs == RopePairs::kAdjacent ? ia + 1 : ia + r / 2;
          double a = before.at(ia), b = before.at(ib);
          want[ia] = a * std::cos(angle) - b * std::sin(angle);
          want[ib] = a * std::sin(angle) + b * std::cos(angle);
        }
    expect_close(x, want, 2e-7, 3, "rope");
  }
}

TEST_ROWS(Rope, AgreesWithDoublePrecisionOnStridedHeads) {
  for (DType type : {DType::kF32, DType::kBF16})
    for (RopePairs pairs : {RopePairs::kAdjacent, RopePairs::kHalves})
      for (bool inverse : {false, true}) {
        check_rotation(rig, type, pairs, inverse);
        if (::testing::Test::HasFatalFailure()) return;
      }
}

TEST_ROWS(Rope, InverseUndoesTheRotation) {
  Array x(DType::kF32, {2, 2, 64}), y(DType::kF32, {2, 2, 64}), angles(DType::kF32, {2, 32, 2});
  auto f = as_array(frequencies(10000, 1, 4096));
  int32_t positions[] = {777, 123456};
  rope_angles(rig.ctx, positions, f.view, angles.view);
  x.fill_normal();
  rope(rig.ctx, x.view, angles.view, RopePairs::kAdjacent, false, y.view);
  rope(rig.ctx, y.view, angles.view, RopePairs::kAdjacent, true, y.view);
  for (int64_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y.at(i), x.at(i), 1e-6);
}

}  // namespace
}  // namespace hadal::test
