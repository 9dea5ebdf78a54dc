// Quantisers. The codes and scales are compared with a search over all codes in double
// precision, the Hadamard transform with its defining matrix; short last blocks, padded rows.
#include "gpu/reference.h"
#include "kernels/gpu/kl.h"

namespace hadal {
namespace {

using namespace reference;

double row_scale(int64_t i) { return std::pow(10.0, static_cast<double>(i) - 2); }

// Smallest power of two that is at least t.
double pow2_above(double t) {
  int e = 0;
  double m = std::frexp(t, &e);  // t = m 2^e, m in [0.5, 1)
  return std::ldexp(1.0, m == 0.5 ? e - 1 : e);
}

double amax(const Tensor& x, int64_t row, int64_t begin, int64_t end) {
  double m = 0;
  for (int64_t c = begin; c < end; ++c) m = std::max(m, std::fabs(get(x, row, c)));
  return m;
}

// The nearest of the format's values; of two equally near the one with the even code.
double nearest(double v, const std::vector<double>& values) {
  size_t best = 0;
  for (size_t i = 1; i < values.size(); ++i) {
    double d = std::fabs(std::fabs(v) - values[i]), b = std::fabs(std::fabs(v) - values[best]);
    if (d < b || (d == b && i % 2 == 0)) best = i;
  }
  return std::copysign(values[best], v);
}

std::vector<double> fp8_values() {
  std::vector<double> v;
  for (int code = 0; code < 127; ++code) {
    int e = code >> 3, m = code & 7;
    v.push_back(e ? std::ldexp(8 + m, e - 10) : std::ldexp(m, -9));
  }
  return v;
}

const std::vector<double> kFp4 = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

class Quant : public testing::TestWithParam<std::tuple<DType, int64_t>> {};

TEST_P(Quant, CodesAreTheNearest) {
  auto [type, columns] = GetParam();
  auto values = fp8_values();
  for (auto m : machines()) {
    for (bool pow2 : {false, true}) {
      Arena arena;
      Tensor x = arena.normal(type, {5, columns}, 3, row_scale);
      int64_t blocks = (columns + 127) / 128;
      Activation out{arena.poison(DType::kF8E4M3, {5, columns}, 5),
                     arena.poison(DType::kF32, {5, blocks}, 1)};
      set(x, 0, 1, 0);
      target::quantize_fp8(on(m), x, pow2, out);
      Doubles scales, codes;
      for (int64_t r = 0; r < 5; ++r) {
        for (int64_t b = 0; b < blocks; ++b) {
          double top = std::max(1e-4, amax(x, r, b * 128, std::min(columns, b * 128 + 128)));
          scales.push_back(pow2 ? pow2_above(top / 448) : top / 448);
        }
        for (int64_t c = 0; c < columns; ++c)
          codes.push_back(nearest(get(x, r, c) / get(out.scale, r, c / 128), values));
      }
      expect_close(out.scale, scales, 2e-7, 0, "scales, " + describe(m));
      // x / scale is rounded to fp32 before the search: one code in very many may differ by a step.
      int64_t differ = 0;
      Arena::each(out.data, [&](int64_t i, int64_t j, int64_t) {
        double want = codes[i * columns + j], got = get(out.data, i, j);
        differ += got != want;
        EXPECT_NEAR(got, want, std::fabs(want) / 8);
      });
      EXPECT_LE(differ, pow2 ? 0 : 1);
      EXPECT_TRUE(arena.padding_untouched());
    }
  }
}

TEST_P(Quant, RoundTripsGiveTheNearestValues) {
  auto [type, columns] = GetParam();
  for (auto m : machines()) {
    Arena arena;
    Tensor x = arena.normal(type, {5, columns}, 3, row_scale), before = arena.copy(x);
    target::qdq_fp8(on(m), x, 64);
    auto values = fp8_values();
    Doubles want;
    for (int64_t r = 0; r < 5; ++r)
      for (int64_t c = 0; c < columns; ++c) {
        int64_t b = c / 64 * 64;
        double s = pow2_above(std::max(1e-4, amax(before, r, b, std::min(columns, b + 64))) / 448);
        want.push_back(nearest(get(before, r, c) / s, values) * s);
      }
    expect_close(x, want, 0, 0, "fp8, " + describe(m));
    EXPECT_TRUE(arena.padding_untouched());

    int64_t wide = (columns + 31) / 32 * 32;
    Tensor y = arena.normal(type, {5, wide}, 2, row_scale), y0 = arena.copy(y);
    target::qdq_fp4(on(m), y);
    want.clear();
    for (int64_t r = 0; r < 5; ++r)
      for (int64_t c = 0; c < wide; ++c) {
        double s = pow2_above(amax(y0, r, c / 32 * 32, c / 32 * 32 + 32) / 6);
        want.push_back(nearest(get(y0, r, c) / s, kFp4) * s);
      }
    expect_close(y, want, 0, 0, "fp4, " + describe(m));
    EXPECT_TRUE(arena.padding_untouched());
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Quant,
                         testing::Combine(testing::Values(DType::kF32, DType::kBF16),
                                          testing::Values(1, 64, 200, 513)));

TEST(Quant, AZeroBlockAndANanStayWhatTheyAre) {
  for (auto m : machines()) {
    Arena arena;
    Tensor x = arena.normal(DType::kF32, {2, 128});
    for (int64_t c = 0; c < 128; ++c) set(x, 0, 0, c);
    set(x, NAN, 1, 77);
    Activation out{arena.poison(DType::kF8E4M3, {2, 128}), arena.poison(DType::kF32, {2, 1})};
    target::quantize_fp8(on(m), x, false, out);
    for (int64_t c = 0; c < 128; ++c) EXPECT_EQ(get(out.data, 0, c), 0);
    for (int64_t c = 0; c < 128; ++c) EXPECT_EQ(std::isnan(get(out.data, 1, c)), c == 77);
  }
}

TEST(Quant, HadamardIsItsMatrix) {
  for (auto m : machines()) {
    for (DType type : {DType::kF32, DType::kBF16}) {
      for (int64_t n : {1, 2, 64, 128, 512}) {
        Arena arena;
        Tensor x = arena.normal(type, {3, n}, 1, row_scale);
        Doubles want, top;
        for (int64_t r = 0; r < 3; ++r)
          for (int64_t i = 0; i < n; ++i) {
            double sum = 0;
            for (int64_t j = 0; j < n; ++j)
              sum += __builtin_parityll(i & j) ? -get(x, r, j) : get(x, r, j);
            want.push_back(sum / std::sqrt(static_cast<double>(n)));
          }
        target::hadamard(on(m), x);
        expect_close(x, want, rounding(type), 2e-6, describe(m));
        EXPECT_TRUE(arena.padding_untouched());
      }
    }
  }
}

TEST(Quant, DeviceTableOfFp4IsTheTable) {
  for (uint32_t code = 0; code < 16; ++code)
    EXPECT_EQ(std::bit_cast<uint32_t>(e2m1_to_f32(code)), std::bit_cast<uint32_t>(kE2M1[code]));
}

}  // namespace
}  // namespace hadal
