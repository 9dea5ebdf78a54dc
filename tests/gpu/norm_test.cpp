// Normalisations against double precision: rows scaled by their index (which a random row
// would hide), odd widths, padded strides, and the fused forms bit for bit against their parts.
#include "gpu/reference.h"

namespace hadal {
namespace {

using namespace reference;

constexpr double kEps = 1e-6;

double row_scale(int64_t i) { return static_cast<double>(i + 1); }

Doubles rms_norm(const Tensor& x, const Tensor& delta, const Tensor& w) {
  Doubles y;
  for (int64_t i = 0; i < x.shape[0]; ++i) {
    auto value = [&](int64_t c) { return get(x, i, c) + (delta.empty() ? 0 : get(delta, i, c)); };
    double squares = 0, n = static_cast<double>(x.shape[1]);
    for (int64_t c = 0; c < x.shape[1]; ++c) squares += value(c) * value(c);
    for (int64_t c = 0; c < x.shape[1]; ++c)
      y.push_back(value(c) / std::sqrt(squares / n + kEps) * (w.empty() ? 1 : get(w, c)));
  }
  return y;
}

class Norm : public testing::TestWithParam<std::tuple<DType, int64_t>> {};

TEST_P(Norm, RmsNormMatchesDouble) {
  auto [type, columns] = GetParam();
  for (auto m : machines()) {
    for (DType weight : {DType::kF32, DType::kBF16}) {
      Arena arena;
      Tensor x = arena.normal(type, {7, columns}, 3, row_scale),
             w = arena.normal(weight, {columns});
      Tensor y = arena.poison(type, {7, columns}, 5);
      target::rms_norm(on(m), x, w, kEps, y);
      expect_close(y, rms_norm(x, {}, w), rounding(type), 1e-30, describe(m));
      Doubles unweighted = rms_norm(x, {}, {});
      target::rms_norm(on(m), x, {}, kEps, x);
      expect_close(x, unweighted, rounding(type), 1e-30, "in place, " + describe(m));
      EXPECT_TRUE(arena.padding_untouched());
    }
  }
}

TEST_P(Norm, AddRmsNormUsesTheUnroundedSum) {
  auto [type, columns] = GetParam();
  for (auto m : machines()) {
    Arena arena;
    Tensor x = arena.normal(type, {5, columns}, 1, row_scale),
           delta = arena.normal(type, {5, columns});
    Tensor w = arena.normal(DType::kBF16, {columns}), y = arena.poison(type, {5, columns}, 2);
    Doubles want = rms_norm(x, delta, w), sum;
    Arena::each(
        x, [&](int64_t i, int64_t j, int64_t) { sum.push_back(get(x, i, j) + get(delta, i, j)); });
    target::add_rms_norm(on(m), x, delta, w, kEps, y);
    // Sums that cancel carry the rounding of their terms, hence the absolute part.
    expect_close(y, want, rounding(type), 1e-6, "y, " + describe(m));
    expect_close(x, sum, rounding(type, 0), 1e-6, "residual, " + describe(m));
    EXPECT_TRUE(arena.padding_untouched());
  }
}

TEST_P(Norm, QuantisedFormHasTheBitsOfItsParts) {
  auto [type, columns] = GetParam();
  int64_t blocks = (columns + 127) / 128;
  for (auto m : machines()) {
    for (bool pow2 : {false, true}) {
      Arena arena;
      Tensor x = arena.normal(type, {5, columns}, 1, row_scale);
      Tensor delta = arena.normal(type, {5, columns}), w = arena.normal(DType::kBF16, {columns});
      Tensor x2 = arena.copy(x), y = arena.poison(type, {5, columns});
      Tensor y2 = arena.poison(type, {5, columns});
      Activation codes{arena.poison(DType::kF8E4M3, {5, columns}, 7),
                       arena.poison(DType::kF32, {5, blocks})};
      Activation codes2{arena.poison(DType::kF8E4M3, {5, columns}, 7),
                        arena.poison(DType::kF32, {5, blocks})};
      target::add_rms_norm(on(m), x, delta, w, kEps, y);
      target::quantize_fp8(on(m), y, pow2, codes);
      target::add_rms_norm_fp8(on(m), x2, delta, w, kEps, y2, pow2, codes2);
      expect_same(y2, y, "y");
      expect_same(x2, x, "residual");
      expect_same(codes2.data, codes.data, "codes");
      expect_same(codes2.scale, codes.scale, "scales");
      Activation codes3{arena.poison(DType::kF8E4M3, {5, columns}, 7),
                        arena.poison(DType::kF32, {5, blocks})};
      target::rms_norm(on(m), x, w, kEps, y);
      target::quantize_fp8(on(m), y, pow2, codes);
      target::add_rms_norm_fp8(on(m), x, {}, w, kEps, {}, pow2, codes3);
      expect_same(codes3.data, codes.data, "codes without y");
      EXPECT_TRUE(arena.padding_untouched());
    }
  }
}

TEST_P(Norm, LayerNormMatchesDouble) {
  auto [type, columns] = GetParam();
  for (auto m : machines()) {
    Arena arena;
    Tensor x = arena.normal(type, {5, columns}, 3, row_scale), y = arena.poison(type, {5, columns});
    Tensor w = arena.normal(DType::kF32, {columns}), b = arena.normal(DType::kF32, {columns});
    Doubles want;
    for (int64_t i = 0; i < 5; ++i) {
      double mean = 0, squares = 0, n = static_cast<double>(columns);
      for (int64_t c = 0; c < columns; ++c) mean += get(x, i, c) / n;
      for (int64_t c = 0; c < columns; ++c) squares += std::pow(get(x, i, c) - mean, 2);
      for (int64_t c = 0; c < columns; ++c)
        want.push_back((get(x, i, c) - mean) / std::sqrt(squares / n + kEps) * get(w, c) +
                       get(b, c));
    }
    target::layer_norm(on(m), x, w, b, kEps, y);
    expect_close(y, want, rounding(type), 2e-6, describe(m));
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Norm,
                         testing::Combine(testing::Values(DType::kF32, DType::kBF16),
                                          testing::Values(1, 64, 130, 517, 7168)));

TEST(Norm, NoRowsIsNoWork) {
  Machine m;
  Arena arena;
  Tensor x = arena.poison(DType::kF32, {0, 64}), w = arena.normal(DType::kF32, {64});
  target::rms_norm(on(m), x, w, kEps, x);
  EXPECT_TRUE(std::isnan(get(x, 0, 0)));
}

}  // namespace
}  // namespace hadal
