// Quantisers against nearest-value searches over the whole code tables in double precision, and
// against the check vectors of spec V4 10.3 and spec V3.2 6.1 and 12.1.
#include "kernels/quant.h"

#include "kernels/op_rig.h"

namespace hadal::test {
namespace {

// The 127 magnitudes of e4m3 and the 8 of e2m1, from the formats' definitions.
std::vector<double> e4m3_table() {
  std::vector<double> v;
  for (int code = 0; code < 127; ++code) {
    int e = code >> 3, m = code & 7;
    v.push_back(e ? std::ldexp(1 + m / 8.0, e - 7) : std::ldexp(m / 8.0, -6));
  }
  return v;
}
const std::vector<double> kFp4Table = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

// Index of the magnitude nearest to |x|, ties to the even index, past the end to the last.
int nearest(const std::vector<double>& table, double x) {
  double a = std::abs(x);
  int best = 0;
  for (int i = 1; i < static_cast<int>(table.size()); ++i) {
    double d = std::abs(table[i] - a), b = std::abs(table[best] - a);
    if (d < b || (d == b && i % 2 == 0)) best = i;
  }
  return best;
}

double pow2_scale(double amax, double top, double floor) {
  return std::exp2(std::ceil(std::log2(std::max(amax, floor) / top)));
}

struct Quantised {
  Array codes, scales;
};

Quantised quantise(Rig& rig, const Array& x, bool pow2) {
  int64_t m = x.view.shape[0], k = x.view.shape[1];
  Quantised q{Array(DType::kF8E4M3, {m, k}), Array(DType::kF32, {m, (k + 127) / 128})};
  quantize_fp8(rig.ctx, x.view, pow2, {q.codes.view, q.scales.view});
  return q;
}

Array row_of(const std::vector<double>& v, DType t = DType::kF32) {
  Array a(t, {1, static_cast<int64_t>(v.size())});
  for (size_t i = 0; i < v.size(); ++i) a.set(i, v[i]);
  return a;
}

// x_i of spec V4 10.3.
Array check_vector(int n, DType t) {
  std::vector<double> v;
  for (int i = 0; i < n; ++i) v.push_back((29 * i % 64 - 31.5) / 4);
  return row_of(v, t);
}

TEST_ROWS(QdqFp8, MatchesTheCheckVector) {
  for (DType t : {DType::kF32, DType::kBF16}) {
    Array x = check_vector(64, t);
    EXPECT_EQ(x.at(0), -7.875);
    EXPECT_EQ(x.at(7), -5.125);
    qdq_fp8(rig.ctx, x.view, 64);
    const double want[] = {-8, -0.625, 6.5, -2, 5, -3.5, 3.5, -5};
    for (int i = 0; i < 8; ++i) EXPECT_EQ(x.at(i), want[i]) << i;
  }
}

TEST_ROWS(QuantizeFp8, GivesTheCheckVectorsCodes) {
  // The same 64 values in one block of 128 columns: the amax and so the codes are the same.
  Quantised q = quantise(rig, check_vector(64, DType::kF32), true);
  const uint8_t want[] = {0xF8, 0xDA, 0x75, 0xE8, 0x72, 0xEE, 0x6E, 0xF2};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(q.codes.storage[i], want[i]) << i;
  EXPECT_EQ(q.scales.at(0), 0x1p-5);
}

TEST_ROWS(QdqFp4, MatchesTheCheckVector) {
  for (DType t : {DType::kF32, DType::kBF16}) {
    Array x = check_vector(32, t);
    qdq_fp4(rig.ctx, x.view);
    const double want[] = {-8, -1, 6, -2, 6, -4, 4, -6};
    for (int i = 0; i < 8; ++i) EXPECT_EQ(x.at(i), want[i]) << i;
  }
}

TEST_ROWS(QuantizeFp8, GivesTheSpecifiedScales) {
  const std::pair<double, double> cases[] = {{448, 1},           {448.0001, 2}, {449, 2},
                                             {224, 0.5},         {7, 0x1p-6},   {3.5, 0x1p-7},
                                             {3.515625, 0x1p-6}, {1, 0x1p-8},   {1e-4, 0x1p-22},
                                             {3e-5, 0x1p-22},    {0, 0x1p-22}};
  for (auto [amax, scale] : cases) {
    EXPECT_EQ(quantise(rig, row_of({0.0, -amax, amax / 3}), true).scales.at(0), scale) << amax;
    double plain = static_cast<float>(std::max(amax, 1e-4)) / 448.0f;
    EXPECT_NEAR(quantise(rig, row_of({0.0, -amax, amax / 3}), false).scales.at(0), plain,
                plain * 1e-7);
  }
}

TEST_ROWS(QuantizeFp8, RoundsAsTheSpecificationsList) {
  // A first element of 448 makes the scale 1, so the codes are those of the values.
  const std::vector<double> x = {448,    -448,    1.0,         0.3,    17,     19,  260,
                                 0x1p-9, 0x1p-10, 3 * 0x1p-11, 1.0625, 1.1875, 440, 3 * 0x1p-10};
  const uint8_t want[] = {0x7E, 0xFE, 0x38, 0x2A, 0x58, 0x5A, 0x78,
                          0x01, 0x00, 0x01, 0x38, 0x3A, 0x7E, 0x02};
  Quantised q = quantise(rig, row_of(x), true);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(q.codes.storage[i], want[i]) << x[i];
  // The grid there is 416, 448.
  EXPECT_EQ(q.codes.at(12), 448);
  EXPECT_EQ(q.codes.at(13), 0x1p-8);
}

TEST_ROWS(QuantizeFp8, EveryCodeIsTheNearest) {
  auto table = e4m3_table();
  for (DType t : {DType::kF32, DType::kBF16})
    for (bool pow2 : {true, false})
      for (int64_t k : {1, 5, 127, 128, 129, 300, 640}) {
        Array x(t, {3, k});
        x.fill([] { return normal() * std::exp2(static_cast<double>(uniform(-12, 3))); });
        Quantised q = quantise(rig, x, pow2);
        int64_t blocks = (k + 127) / 128;
        for (int64_t m = 0; m < 3; ++m)
          for (int64_t b = 0; b < blocks; ++b) {
            double amax = 0;
            int64_t end = std::min(k, (b + 1) * 128);
            for (int64_t i = b * 128; i < end; ++i)
              amax = std::max(amax, std::abs(x.at(m * k + i)));
            double s = q.scales.at(m * blocks + b);
            if (pow2) {
              EXPECT_EQ(s, pow2_scale(amax, 448, 1e-4f));
            } else {
              EXPECT_NEAR(s, std::max<double>(amax, 1e-4f) / 448, s * 1.2e-7);
            }
            for (int64_t i = b * 128; i < end; ++i) {
              // The quotient is rounded to fp32 before it is coded.
              float scaled = static_cast<float>(x.at(m * k + i)) / static_cast<float>(s);
              ASSERT_EQ(q.codes.storage[m * k + i],
                        nearest(table, scaled) | (std::signbit(scaled) ? 0x80 : 0))
                  << scaled;
            }
          }
      }
}

// All bf16 values of one binade and all fp32 midpoints of the grid: every rounding decision.
TEST_ROWS(QuantizeFp8, DecidesEveryMidpointAsTiesToEven) {
  auto table = e4m3_table();
  std::vector<double> x = {448};
  for (size_t i = 0; i + 1 < table.size(); ++i) {
    double mid = (table[i] + table[i + 1]) / 2;
    float f = static_cast<float>(mid);
    for (double v : {double(f), double(std::nextafterf(f, 0)), double(std::nextafterf(f, 500))}) {
      x.push_back(v);
      x.push_back(-v);
    }
  }
  for (size_t first = 1; first < x.size(); first += 127) {
    std::vector<double> part = {448};
    for (size_t i = first; i < std::min(x.size(), first + 127); ++i) part.push_back(x[i]);
    Quantised q = quantise(rig, row_of(part), true);
    for (size_t i = 0; i < part.size(); ++i)
      ASSERT_EQ(q.codes.storage[i], nearest(table, part[i]) | (part[i] < 0 ? 0x80 : 0)) << part[i];
  }
}

TEST_ROWS(QuantizeFp8, KeepsNan) {
  Quantised q = quantise(rig, row_of({1, std::numeric_limits<double>::quiet_NaN(), 2}), true);
  EXPECT_EQ(q.codes.storage[1] & 0x7F, 0x7F);
  EXPECT_EQ(q.scales.at(0), 0x1p-7);
}

constexpr DType kTypes[] = {DType::kF32, DType::kBF16};

TEST_ROWS(QdqRow, Fp8IsTheNearestGridValueOnStridedRows) {
  for (DType type : kTypes) {
    auto table = e4m3_table();
    for (int64_t block : {64, 128})
      for (int64_t n : {64, 448, 100, 512}) {
        Array x(type, {3, n + 40});
        x.fill([] { return normal() * std::exp2(static_cast<double>(uniform(-9, 4))); });
        Array before = x;
        qdq_fp8(rig.ctx, x.view.slice(1, 8, 8 + n), block);
        for (int64_t m = 0; m < 3; ++m)
          for (int64_t i = 0; i < n + 40; ++i) {
            int64_t at = m * (n + 40) + i, c = i - 8;
            if (c < 0 || c >= n) {
              ASSERT_EQ(x.at(at), before.at(at));
              continue;
            }
            double amax = 0;
            for (int64_t j = c / block * block; j < std::min(n, c / block * block + block); ++j)
              amax = std::max(amax, std::abs(before.at(m * (n + 40) + 8 + j)));
            double s = pow2_scale(amax, 448, 1e-4f), v = before.at(at);
            ASSERT_EQ(x.at(at), std::copysign(table[nearest(table, v / s)] * s, v));
          }
      }
  }
}

TEST_ROWS(QdqRow, Fp4IsTheNearestGridValue) {
  for (DType type : kTypes) {
    Array x(type, {5, 128});
    x.fill([] { return normal() * std::exp2(static_cast<double>(uniform(-9, 4))); });
    for (int i = 0; i < 32; ++i) x.set(i, 0);          // a block of zeros
    for (int i = 32; i < 64; ++i) x.set(i, 0x1p-100);  // a block far below the FP8 floor
    Array before = x;
    qdq_fp4(rig.ctx, x.view);
    for (int64_t i = 0; i < x.size(); ++i) {
      double amax = 0;
      for (int64_t j = i / 32 * 32; j < i / 32 * 32 + 32; ++j)
        amax = std::max(amax, std::abs(before.at(j)));
      double s = pow2_scale(amax, 6, 6 * 0x1p-126), v = before.at(i);
      ASSERT_EQ(x.at(i), std::copysign(kFp4Table[nearest(kFp4Table, v / s)] * s, v)) << i;
    }
  }
}

TEST_ROWS(QdqRow, Fp4RoundsTiesToTheEvenCode) {
  for (DType type : kTypes) {
    Array x(type, {1, 32});
    const double in[] = {6, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, -0.25, -0.75, -1.25, -5};
    const double want[] = {6, 0, 1, 1, 2, 2, 4, 4, 0, -1, -1, -4};
    x.fill([] { return 0.0; });
    for (int i = 0; i < 12; ++i) x.set(i, in[i]);
    qdq_fp4(rig.ctx, x.view);
    for (int i = 0; i < 12; ++i) EXPECT_EQ(x.at(i), want[i]) << in[i];
  }
}

TEST_ROWS(QdqRow, RoundTripIsIdempotent) {
  for (DType type : kTypes) {
    Array x(type, {4, 256});
    x.fill_normal();
    qdq_fp8(rig.ctx, x.view, 64);
    Array once = x;
    qdq_fp8(rig.ctx, x.view, 64);
    EXPECT_TRUE(once.same_bits(x));
  }
}

TEST_ROWS(Hadamard, MatchesTheCheckVector) {
  Array x = row_of({0, 1, 2, 3, 4, 5, 6, 7});
  hadamard(rig.ctx, x.view);
  const double want[] = {9.8994949, -1.4142136, -2.8284271, 0, -5.6568542, 0, 0, 0};
  for (int i = 0; i < 8; ++i) EXPECT_NEAR(x.at(i), want[i], 1e-6) << i;
}

TEST_ROWS(Hadamard, OfTheSecondUnitVectorAlternates) {
  Array x(DType::kF32, {1, 128});
  x.fill([] { return 0.0; });
  x.set(1, 1);
  hadamard(rig.ctx, x.view);
  for (int i = 0; i < 128; ++i) EXPECT_NEAR(x.at(i), i % 2 ? -0.0883883476 : 0.0883883476, 4e-9);
  hadamard(rig.ctx, x.view);
  for (int i = 0; i < 128; ++i) EXPECT_NEAR(x.at(i), i == 1, 1e-7);
}

TEST_ROWS(Hadamard, AgreesWithTheMatrix) {
  for (DType t : {DType::kF32, DType::kBF16})
    for (int64_t n : {1, 2, 32, 64, 128, 512}) {
      Array x(t, {3, n});
      x.fill_normal();
      Array before = x;
      hadamard(rig.ctx, x.view);
      std::vector<double> want(x.size());
      for (int64_t m = 0; m < 3; ++m)
        for (int64_t i = 0; i < n; ++i)
          for (int64_t j = 0; j < n; ++j)
            want[m * n + i] += before.at(m * n + j) * (__builtin_popcountll(i & j) % 2 ? -1 : 1) /
                               std::sqrt(double(n));
      expect_close(x, want, 3e-7, 3, "hadamard " + std::to_string(n));
    }
}

TEST_ROWS(Quantisers, RowsDoNotDependOnTheStep) {
  Rig one(1, rig.device), four(4, rig.device);
  Array x(DType::kBF16, {29, 512});
  x.fill_normal();
  for (auto op : std::initializer_list<std::function<void(Context&, const Tensor&)>>{
           [](Context&c, const Tensor&v) { qdq_fp8(c, v, 64); },
           [](Context&c, const Tensor&v) { qdq_fp4(c, v); },
           [](Context&c, const Tensor&v) { hadamard(c, v); }}) {
    Array together = x, alone = x;
    op(four.ctx, together.view);
    for (int64_t m = 0; m < 29; ++m) op(one.ctx, alone.view.slice(0, m, m + 1));
    EXPECT_TRUE(together.same_bits(alone));
  }
}

}  // namespace
}  // namespace hadal::test
