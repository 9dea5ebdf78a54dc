// Every candidate of the matrix products against double-precision sums over weight_value(), on
// shapes that are not multiples of any block, and the promises of kernels/linear.h: a row's result
// does not depend on the other rows nor on the number of threads.
#include "kernels/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/cpu/ref_linear.h"
#include "kernels/cpu/tuned_linear.h"
#include "kernels/dispatch/kernels.h"

namespace hadal {
namespace {

struct Family {
  const char* name;
  bool Device::*needs;  // null: runs everywhere
  LinearFn* linear;
  GroupedLinearFn* grouped;
  BatchedLinearFn* batched;
  BatchedLinearFn* transposed;
};

const Family kFamilies[] = {
    {"ref", nullptr, ref_linear, ref_grouped_linear, ref_batched_linear,
     ref_batched_linear_transposed},
    {"avx2", &Device::avx2, avx2_linear, avx2_grouped_linear, avx2_batched_linear,
     avx2_batched_linear_transposed},
    {"avx512", &Device::avx512, avx512_linear, avx512_grouped_linear, avx512_batched_linear,
     avx512_batched_linear_transposed},
    {"amx", &Device::amx, amx_linear, amx_grouped_linear, amx_batched_linear,
     amx_batched_linear_transposed},
};

enum class Scales { kPow2, kAny };

struct Kind {
  DType dtype;  // of the stored numbers
  Scales scales = Scales::kAny;
  DType scale_dtype = DType::kF32;
};

const Kind kActivationKinds[] = {
    {DType::kF32}, {DType::kBF16}, {DType::kF8E4M3, Scales::kPow2}, {DType::kF8E4M3, Scales::kAny}};
const Kind kWeightKinds[] = {{DType::kF32},
                             {DType::kBF16},
                             {DType::kF16},
                             {DType::kF8E4M3, Scales::kPow2, DType::kF8E8M0},
                             {DType::kF8E4M3, Scales::kPow2, DType::kF32},
                             {DType::kF8E4M3, Scales::kAny, DType::kF32},
                             {DType::kI8, Scales::kPow2, DType::kF8E8M0}};

std::string describe(const Kind& k) {
  std::string s = dtype_name(k.dtype);
  if (k.dtype == DType::kI8) return s;
  if (k.dtype == DType::kF8E4M3)
    s += std::string("/") + dtype_name(k.scale_dtype) +
         (k.scales == Scales::kPow2 ? "(powers of two)" : "");
  return s;
}

// Owns the numbers of one operand.
struct Numbers {
  std::vector<uint8_t> data, scale;
};

class Maker {
 public:
  explicit Maker(uint32_t seed) : random_(seed) {}

  // [rows, columns] with `gap` unused elements after each row.
  Tensor fill(std::vector<uint8_t>& bytes, DType t, int64_t rows, int64_t columns, int64_t gap) {
    int64_t pitch = columns + gap;
    bytes.resize(std::max<int64_t>(1, rows * pitch * dtype_size(t)));
    for (int64_t i = 0; i < rows * pitch; ++i) put(bytes.data(), t, i);
    Tensor all(bytes.data(), t, {rows, pitch});
    return all.slice(1, 0, columns);
  }

  Activation activation(Numbers& n, const Kind& kind, int64_t rows, int64_t columns, int64_t gap) {
    Activation x;
    x.data = fill(n.data, kind.dtype, rows, columns, gap);
    if (kind.dtype == DType::kF8E4M3)
      x.scale = scales(n.scale, kind, rows, (columns + kFp8Block - 1) / kFp8Block);
    return x;
  }

  Weight weight(Numbers& n, const Kind& kind, int64_t rows, int64_t columns, int64_t row0 = 0) {
    Weight w;
    bool fp4 = kind.dtype == DType::kI8;
    w.data = fill(n.data, kind.dtype, rows, fp4 ? columns / 2 : columns, 0);
    if (fp4) w.scale = scales(n.scale, kind, rows, columns / kFp4Block);
    if (kind.dtype == DType::kF8E4M3) {
      w.row0 = row0;
      w.scale = scales(n.scale, kind, (row0 + rows + kFp8Block - 1) / kFp8Block,
                       (columns + kFp8Block - 1) / kFp8Block);
    }
    return w;
  }

  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % n); }

 private:
  float real() { return std::normal_distribution<float>()(random_); }

  void put(uint8_t* p, DType t, int64_t i) {
    switch (t) {
      case DType::kF32:
        reinterpret_cast<float*>(p)[i] = real();
        break;
      case DType::kBF16:
        reinterpret_cast<BF16*>(p)[i] = f32_to_bf16(real());
        break;
      case DType::kF16:
        // Every finite half, the tiny ones included: exponent 0..17.
        reinterpret_cast<uint16_t*>(p)[i] =
            static_cast<uint16_t>((random_() & 0x83ff) | (random_() % 18) << 10);
        break;
      case DType::kF8E4M3:
        do p[i] = static_cast<uint8_t>(random_());
        while ((p[i] & 0x7f) == 0x7f);
        break;
      default:
        p[i] = static_cast<uint8_t>(random_());
    }
  }

  Tensor scales(std::vector<uint8_t>& bytes, const Kind& kind, int64_t rows, int64_t columns) {
    bytes.resize(std::max<int64_t>(1, rows * columns * dtype_size(kind.scale_dtype)));
    for (int64_t i = 0; i < rows * columns; ++i) {
      int exponent = static_cast<int>(random_() % 9) - 6;
      if (kind.scale_dtype == DType::kF8E8M0)
        bytes[i] = static_cast<uint8_t>(127 + exponent);
      else
        reinterpret_cast<float*>(bytes.data())[i] =
            std::ldexp(kind.scales == Scales::kPow2 ? 1.0f : 1.0f + random_() * 0x1p-32f, exponent);
    }
    return Tensor(bytes.data(), kind.scale_dtype, {rows, columns});
  }

  std::mt19937 random_;
};

double value(const Activation& x, int64_t m, int64_t k) {
  switch (x.data.dtype) {
    case DType::kF32:
      return *x.data.at<const float>(m, k);
    case DType::kBF16:
      return bf16_to_f32(*x.data.at<const BF16>(m, k));
    default:
      return double{e4m3_to_f32(*x.data.at<const uint8_t>(m, k))} *
             *x.scale.at<const float>(m, k / kFp8Block);
  }
}

double output(const Tensor& y, int64_t m, int64_t n) {
  return y.dtype == DType::kF32 ? *y.at<const float>(m, n) : bf16_to_f32(*y.at<const BF16>(m, n));
}

// W as doubles, decoded once.
std::vector<double> decode(const Weight& w) {
  std::vector<double> out(w.n() * w.k());
  for (int64_t n = 0; n < w.n(); ++n)
    for (int64_t k = 0; k < w.k(); ++k) out[n * w.k() + k] = weight_value(w, n, k);
  return out;
}

// An fp32 sum of K products is off by about sqrt(K) ulps of the sum of magnitudes (a few more for
// the scales); bf16 rounding adds half an ulp of the result.
void expect_near(double got, double want, double magnitude, int64_t k, DType y) {
  double bound = (8 + std::sqrt(static_cast<double>(k))) * 0x1p-24 * magnitude;
  if (y == DType::kBF16) bound += std::abs(want) * 0x1p-8;
  if (!(std::abs(got - want) <= bound))
    FAIL() << "got " << got << ", want " << want << ", bound " << bound;
}

// Compares rows [first, last) of y with x (row i of y is row rows[i] of x) times W.
void expect_product(const Activation& x, const int32_t* rows, const Weight& w, const Tensor& y,
                    int64_t first, int64_t last) {
  std::vector<double> decoded = decode(w), row(w.k());
  for (int64_t i = first; i < last; ++i) {
    for (int64_t k = 0; k < w.k(); ++k) row[k] = value(x, rows ? rows[i] : i, k);
    for (int64_t n = 0; n < w.n(); ++n) {
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < w.k(); ++k) {
        double p = row[k] * decoded[n * w.k() + k];
        sum += p;
        magnitude += std::abs(p);
      }
      expect_near(output(y, i, n), sum, magnitude, w.k(), y.dtype);
      if (testing::Test::HasFatalFailure()) {
        ADD_FAILURE() << "at row " << i << ", column " << n;
        return;
      }
    }
  }
}

void expect_same_bits(const Tensor& a, const Tensor& b) {
  for (int64_t m = 0; m < a.shape[0]; ++m)
    for (int64_t n = 0; n < a.shape[1]; ++n)
      ASSERT_EQ(output(a, m, n), output(b, m, n)) << "at row " << m << ", column " << n;
}

struct Shape {
  int64_t m, n, k, row0 = 0;
};

const Shape kShapes[] = {
    {1, 1, 32},       {1, 33, 160, 5},   {1, 130, 1088},  {2, 7, 48, 120},    {3, 65, 144, 127},
    {5, 17, 320, 64}, {8, 40, 256},      {16, 31, 96, 1}, {17, 50, 96, 100},  {33, 35, 144},
    {64, 64, 128},    {64, 290, 64, 64}, {129, 33, 160},  {40, 48, 1184, 96},
};

class LinearTest : public testing::TestWithParam<Family> {
 protected:
  void SetUp() override {
    const Family& f = GetParam();
    if (f.needs && !(detect_device().*f.needs))
      GTEST_SKIP() << "this CPU cannot run the " << f.name << " kernels";
  }

  template <class F>
  void for_each_kind(F&& body) {
    for (const Kind& xk : kActivationKinds)
      for (const Kind& wk : kWeightKinds) {
        SCOPED_TRACE("x " + describe(xk) + ", W " + describe(wk));
        body(xk, wk);
        if (HasFailure()) return;
      }
  }

  static bool fits(const Kind& wk, int64_t k) { return wk.dtype != DType::kI8 || k % 32 == 0; }

  ThreadPool threads_{2};
  Kernels kernels_;
  Context ctx_{threads_, kernels_};
  Maker make_{20};
};

TEST_P(LinearTest, LinearEqualsDoubleSums) {
  for_each_kind([&](const Kind& xk, const Kind& wk) {
    for (const Shape& s : kShapes) {
      if (!fits(wk, s.k)) continue;
      SCOPED_TRACE(testing::Message()
                   << "M " << s.m << ", N " << s.n << ", K " << s.k << ", row0 " << s.row0);
      Numbers xn, wn, yn;
      int64_t gap = s.m % 3;
      Activation x = make_.activation(xn, xk, s.m, s.k, gap);
      Weight w = make_.weight(wn, wk, s.n, s.k, s.row0);
      Tensor y = make_.fill(yn.data, s.n % 2 ? DType::kF32 : DType::kBF16, s.m, s.n, gap);
      GetParam().linear(ctx_, x, w, y);
      expect_product(x, nullptr, w, y, 0, s.m);
      if (HasFailure()) return;
    }
  });
}

TEST_P(LinearTest, RowsOfASliceEqualRowsOfTheWhole) {
  for (const Kind& wk : kWeightKinds) {
    SCOPED_TRACE(describe(wk));
    Numbers xn, wn, yn, sn;
    Activation x = make_.activation(xn, {DType::kBF16}, 3, 192, 0);
    Weight w = make_.weight(wn, wk, 300, 192);
    Tensor y = make_.fill(yn.data, DType::kF32, 3, 300, 0);
    Tensor part = make_.fill(sn.data, DType::kF32, 3, 155, 0);
    GetParam().linear(ctx_, x, w, y);
    GetParam().linear(ctx_, x, w.rows(70, 225), part);
    expect_same_bits(part, y.slice(1, 70, 225));
  }
}

TEST_P(LinearTest, LinearRowDependsOnNothingElse) {
  for_each_kind([&](const Kind& xk, const Kind& wk) {
    for (int64_t m : {2, 7, 16, 37}) {
      SCOPED_TRACE(testing::Message() << "M " << m);
      Numbers xn, wn, yn, on;
      Activation x = make_.activation(xn, xk, m, 416, 0);
      Weight w = make_.weight(wn, wk, 77, 416, 30);
      Tensor y = make_.fill(yn.data, DType::kF32, m, 77, 0);
      GetParam().linear(ctx_, x, w, y);
      for (int count : {1, 2, 3}) {
        ThreadPool pool(count);
        Context ctx{pool, kernels_};
        Tensor other = make_.fill(on.data, DType::kF32, m, 77, 1);
        GetParam().linear(ctx, x, w, other);
        expect_same_bits(other, y);
      }
      for (int64_t i : {int64_t{0}, m / 2, m - 1}) {
        Activation one = x;
        one.data = x.data.slice(0, i, i + 1);
        if (!x.scale.empty()) one.scale = x.scale.slice(0, i, i + 1);
        Tensor alone = make_.fill(on.data, DType::kF32, 1, 77, 0);
        GetParam().linear(ctx_, one, w, alone);
        expect_same_bits(alone, y.slice(0, i, i + 1));
      }
      if (HasFailure()) return;
    }
  });
}

// Kernels may treat rows with power-of-two scales apart; their neighbours must not notice.
TEST_P(LinearTest, RowsOfMixedScalesStayIndependent) {
  const Kind weights[] = {kWeightKinds[3], kWeightKinds[6]};
  for (const Kind& wk : weights) {
    SCOPED_TRACE(describe(wk));
    Numbers xn, wn, yn, on;
    Activation x = make_.activation(xn, {DType::kF8E4M3, Scales::kAny}, 41, 288, 0);
    for (int64_t m = 0; m < 41; m += 3)
      for (int64_t b = 0; b < 3; ++b)
        *x.scale.at<float>(m, b) = std::ldexp(1.0f, -static_cast<int>(b));
    Weight w = make_.weight(wn, wk, 70, 288);
    Tensor y = make_.fill(yn.data, DType::kF32, 41, 70, 0);
    GetParam().linear(ctx_, x, w, y);
    expect_product(x, nullptr, w, y, 0, 41);
    for (int64_t i : {0, 1, 20, 39, 40}) {
      Activation one{x.data.slice(0, i, i + 1), x.scale.slice(0, i, i + 1)};
      Tensor alone = make_.fill(on.data, DType::kF32, 1, 70, 0);
      GetParam().linear(ctx_, one, w, alone);
      expect_same_bits(alone, y.slice(0, i, i + 1));
    }
  }
}

// Row n of W is 0 but for one code, x is all ones: y must be exactly the value of the code.
TEST_P(LinearTest, EveryCodeHasItsValue) {
  constexpr int64_t kColumns = 256;
  struct Case {
    DType dtype, scale;
    int64_t codes, rows;
  };
  const Case cases[] = {{DType::kF8E4M3, DType::kF8E8M0, 256, 256},
                        {DType::kF8E4M3, DType::kF32, 256, 256},
                        {DType::kF16, DType::kF32, 65536, 65536},
                        {DType::kI8, DType::kF8E8M0, 16, 16 * 231}};
  for (const Case& c : cases)
    for (int64_t m : {1, 4, 40}) {
      if (c.dtype == DType::kF16 && m > 1) continue;
      SCOPED_TRACE(testing::Message() << dtype_name(c.dtype) << ", M " << m);
      bool fp4 = c.dtype == DType::kI8;
      int64_t width = fp4 ? kColumns / 2 : kColumns;
      std::vector<uint8_t> data(c.rows * width * dtype_size(c.dtype)), e8m0(c.rows * 8);
      std::vector<float> scales(16, 0.75f), ones(kColumns, 1.0f);
      Weight w;
      w.data = Tensor(data.data(), c.dtype, {c.rows, width});
      // FP4: every scale from 2^-115 to 2^115.
      for (int64_t i = 0; i < c.rows * 8; ++i)
        e8m0[i] = static_cast<uint8_t>(fp4 ? 12 + i / 8 / 16 : 124);
      if (c.scale == DType::kF32)
        w.scale = Tensor(scales.data(), c.scale, {2, 2});
      else
        w.scale = Tensor(e8m0.data(), c.scale, {fp4 ? c.rows : 2, fp4 ? 8 : 2});
      for (int64_t n = 0; n < c.rows; ++n) {
        int64_t code = n % c.codes, column = n * 37 % kColumns;
        if (fp4)
          *w.data.at<uint8_t>(n, column / 2) = static_cast<uint8_t>(code << 4 * (column % 2));
        else if (c.dtype == DType::kF16)
          *w.data.at<uint16_t>(n, column) = static_cast<uint16_t>(code);
        else
          *w.data.at<uint8_t>(n, column) = static_cast<uint8_t>(code);
      }
      std::vector<BF16> x(m * kColumns, f32_to_bf16(1.0f));
      std::vector<float> y(m * c.rows);
      GetParam().linear(ctx_, {Tensor(x.data(), DType::kBF16, {m, kColumns}), {}}, w,
                        Tensor(y.data(), DType::kF32, {m, c.rows}));
      for (int64_t i = 0; i < m * c.rows; ++i) {
        int64_t n = i % c.rows;
        float want = weight_value(w, n, n * 37 % kColumns);
        if (std::isnan(want))
          ASSERT_TRUE(std::isnan(y[i])) << "row " << n;
        else
          ASSERT_EQ(y[i], want) << "row " << n;
      }
    }
}

// Rows per expert: none at the ends, one expert with most of the rows, or with all of them.
const std::vector<int> kRowsPerExpert[] = {
    {0, 3, 0, 41, 1, 0}, {1, 1, 1, 1, 1, 1}, {0, 0, 20, 0}, {2, 17, 130}, {1}};

TEST_P(LinearTest, GroupedEqualsDoubleSums) {
  for_each_kind([&](const Kind& xk, const Kind& wk) {
    for (const auto& counts : kRowsPerExpert) {
      std::vector<int32_t> offsets{0}, rows;
      for (int c : counts) offsets.push_back(offsets.back() + c);
      int64_t source = 23, n = 45, k = 160, m = offsets.back();
      for (int64_t i = 0; i < m; ++i) rows.push_back(static_cast<int32_t>(make_.below(source)));
      Numbers xn, yn;
      std::vector<Numbers> wn(counts.size());
      std::vector<Weight> experts;
      for (size_t e = 0; e < counts.size(); ++e) {
        experts.push_back(make_.weight(wn[e], wk, n, k));
        if (counts[e] == 0) experts[e] = Weight{};
      }
      for (bool gather : {true, false}) {
        SCOPED_TRACE(testing::Message() << "rows " << m << ", gather " << gather);
        Activation x = make_.activation(xn, xk, gather ? source : m, k, 2);
        Tensor y = make_.fill(yn.data, gather ? DType::kBF16 : DType::kF32, m, n, 3);
        const int32_t* from = gather ? rows.data() : nullptr;
        GetParam().grouped(ctx_, x, from, offsets.data(), experts, y);
        for (size_t e = 0; e < counts.size(); ++e)
          if (counts[e]) expect_product(x, from, experts[e], y, offsets[e], offsets[e + 1]);
        if (HasFailure()) return;
      }
    }
  });
}

TEST_P(LinearTest, GroupedRowDependsOnNothingElse) {
  for_each_kind([&](const Kind& xk, const Kind& wk) {
    Numbers xn, yn, on;
    std::vector<Numbers> wn(3);
    std::vector<Weight> experts;
    for (auto& numbers : wn) experts.push_back(make_.weight(numbers, wk, 37, 288));
    const int32_t offsets[] = {0, 19, 19, 25};
    Activation x = make_.activation(xn, xk, 25, 288, 0);
    Tensor y = make_.fill(yn.data, DType::kF32, 25, 37, 0);
    GetParam().grouped(ctx_, x, nullptr, offsets, experts, y);
    for (int count : {1, 2, 3}) {
      ThreadPool pool(count);
      Context ctx{pool, kernels_};
      Tensor other = make_.fill(on.data, DType::kF32, 25, 37, 0);
      GetParam().grouped(ctx, x, nullptr, offsets, experts, other);
      expect_same_bits(other, y);
    }
    for (int32_t i : {0, 7, 18, 21}) {
      const int32_t one[] = {0, i < 19, i < 19, 1}, row[] = {i};
      Tensor alone = make_.fill(on.data, DType::kF32, 1, 37, 0);
      GetParam().grouped(ctx_, x, row, one, experts, alone);
      expect_same_bits(alone, y.slice(0, i, i + 1));
    }
  });
}

// [M, G, C] views of numbers in a wider buffer: both outer strides are free.
Tensor grouped_view(const Tensor& flat, int64_t groups, int64_t columns, int64_t pitch) {
  Tensor t = flat;
  t.rank = 3;
  t.shape = {flat.shape[0], groups, columns};
  t.stride = {flat.stride[0], pitch, 1};
  return t;
}

void expect_batched(const Tensor& x, const std::vector<Weight>& w, const Tensor& y,
                    bool transposed) {
  for (int64_t g = 0; g < x.shape[1]; ++g) {
    std::vector<double> decoded = decode(w[g]);
    int64_t in = x.shape[2], out = y.shape[2];
    for (int64_t m = 0; m < x.shape[0]; ++m)
      for (int64_t o = 0; o < out; ++o) {
        double sum = 0, magnitude = 0;
        for (int64_t i = 0; i < in; ++i) {
          double v = x.dtype == DType::kF32 ? *x.at<const float>(m, g, i)
                                            : bf16_to_f32(*x.at<const BF16>(m, g, i));
          double p = v * (transposed ? decoded[i * out + o] : decoded[o * in + i]);
          sum += p;
          magnitude += std::abs(p);
        }
        double got = y.dtype == DType::kF32 ? *y.at<const float>(m, g, o)
                                            : bf16_to_f32(*y.at<const BF16>(m, g, o));
        expect_near(got, sum, magnitude, in, y.dtype);
        if (testing::Test::HasFatalFailure()) {
          ADD_FAILURE() << "at row " << m << ", group " << g << ", column " << o;
          return;
        }
      }
  }
}

TEST_P(LinearTest, BatchedEqualsDoubleSums) {
  const Shape shapes[] = {{1, 32, 64},       {1, 20, 576},       {2, 128, 96, 64},
                          {7, 33, 144, 100}, {18, 40, 160, 128}, {50, 24, 320}};
  for (const Kind& xk : {Kind{DType::kF32}, Kind{DType::kBF16}})
    for (const Kind& wk : kWeightKinds)
      for (const Shape& s : shapes)
        for (bool transposed : {false, true}) {
          if (!fits(wk, s.k)) continue;
          SCOPED_TRACE(testing::Message()
                       << "x " << describe(xk) << ", W " << describe(wk) << ", M " << s.m << ", N "
                       << s.n << ", K " << s.k << (transposed ? ", transposed" : ""));
          // Groups as slices of one matrix, as the heads of W_UK and W_UV are.
          constexpr int64_t kGroups = 3;
          Numbers xn, wn, yn;
          Weight all = make_.weight(wn, wk, kGroups * (s.n + 8), s.k, s.row0);
          std::vector<Weight> w;
          for (int64_t g = 0; g < kGroups; ++g)
            w.push_back(all.rows(g * (s.n + 8) + 4, g * (s.n + 8) + 4 + s.n));
          int64_t in = transposed ? s.n : s.k, out = transposed ? s.k : s.n;
          Tensor xf = make_.fill(xn.data, xk.dtype, s.m, kGroups * (in + 3), 5);
          Tensor yf = make_.fill(yn.data, s.m % 2 ? DType::kF32 : DType::kBF16, s.m,
                                 kGroups * (out + 2), 1);
          Tensor x = grouped_view(xf, kGroups, in, in + 3);
          Tensor y = grouped_view(yf, kGroups, out, out + 2);
          (transposed ? GetParam().transposed : GetParam().batched)(ctx_, x, w, y);
          expect_batched(x, w, y, transposed);
          if (HasFailure()) return;
        }
}

TEST_P(LinearTest, BatchedRowDependsOnNothingElse) {
  for (const Kind& xk : {Kind{DType::kF32}, Kind{DType::kBF16}})
    for (const Kind& wk : kWeightKinds)
      for (int64_t m : {int64_t{kFewRows}, int64_t{20}})
        for (bool transposed : {false, true}) {
          auto* run = transposed ? GetParam().transposed : GetParam().batched;
          Numbers xn, yn, on;
          std::vector<Numbers> wn(2);
          std::vector<Weight> w;
          for (auto& numbers : wn) w.push_back(make_.weight(numbers, wk, 160, 160, 8));
          auto cut = [](const Tensor& t) { return grouped_view(t, 2, 160, 160); };
          Tensor x = make_.fill(xn.data, xk.dtype, m, 320, 0);
          Tensor y = make_.fill(yn.data, DType::kF32, m, 320, 0);
          run(ctx_, cut(x), w, cut(y));
          for (int count : {1, 3}) {
            ThreadPool pool(count);
            Context ctx{pool, kernels_};
            Tensor other = make_.fill(on.data, DType::kF32, m, 320, 0);
            run(ctx, cut(x), w, cut(other));
            expect_same_bits(other, y);
          }
          // Fewer rows, but as many as keep to the class (few or many) that the candidate sees.
          int64_t first = m > kFewRows ? m - 17 : m - 1;
          Tensor last = make_.fill(on.data, DType::kF32, m - first, 320, 0);
          run(ctx_, cut(x.slice(0, first, m)), w, cut(last));
          expect_same_bits(last, y.slice(0, first, m));
          if (HasFailure()) return;
        }
}

INSTANTIATE_TEST_SUITE_P(Candidates, LinearTest, testing::ValuesIn(kFamilies),
                         [](const auto& info) { return info.param.name; });

TEST(LinearDispatch, NoRowsTouchNothing) {
  ThreadPool threads(2);
  Kernels kernels;
  choose_linear(detect_device(), {}, kernels);
  Context ctx{threads, kernels};
  Maker make(1);
  Numbers wn, yn;
  Weight w = make.weight(wn, {DType::kBF16}, 8, 32);
  float nothing = 0;
  Activation x{Tensor(&nothing, DType::kF32, {0, 32}), {}};
  Tensor y(&nothing, DType::kF32, {0, 8});
  const int32_t offsets[] = {0, 0};
  linear(ctx, x, w, y);
  grouped_linear(ctx, x, nullptr, offsets, std::span(&w, 1), y);
  EXPECT_EQ(nothing, 0.0f);
}

TEST(LinearDispatch, FewAndManyRowsAgreeWithDoubleSums) {
  ThreadPool threads(2);
  Kernels kernels;
  choose_linear(detect_device(), {}, kernels);
  Context ctx{threads, kernels};
  Maker make(2);
  for (int64_t m : {1, 2, 3, 4, 16, 17, 40}) {
    Numbers xn, wn, yn;
    Activation x = make.activation(xn, {DType::kF8E4M3, Scales::kPow2}, m, 256, 0);
    Weight w = make.weight(wn, kWeightKinds[3], 96, 256);
    Tensor y = make.fill(yn.data, DType::kBF16, m, 96, 0);
    linear(ctx, x, w, y);
    expect_product(x, nullptr, w, y, 0, m);
  }
}

TEST(LinearDispatch, WithoutNamesLeavesTheReference) {
  Kernels kernels;
  choose_linear(Device{}, {}, kernels);
  EXPECT_EQ(kernels.linear.few, ref_linear);
  EXPECT_EQ(kernels.linear.many, ref_linear);
  EXPECT_EQ(kernels.grouped_linear.few, ref_grouped_linear);
  EXPECT_EQ(kernels.batched_linear_transposed.few, ref_batched_linear_transposed);
}

}  // namespace
}  // namespace hadal
