// The normalisations against double precision, over widths around every vector length, all dtypes,
// strided and in-place rows, and rows alone against rows together.
#include "kernels/norm.h"

#include "kernels/op_rig.h"

namespace hadal::test {
namespace {

constexpr int64_t kWidths[] = {1, 3, 7, 8, 15, 16, 17, 31, 33, 64, 255, 256, 513, 1536, 4096, 7168};
constexpr DType kActivations[] = {DType::kF32, DType::kBF16};
constexpr DType kWeights[] = {DType::kF32, DType::kBF16, DType::kF16};

std::vector<double> rms_expected(const Array& x, const Array* w, double eps) {
  int64_t c = x.view.shape[1];
  std::vector<double> y(x.size());
  for (int64_t m = 0; m < x.view.shape[0]; ++m) {
    double sum = 0;
    for (int64_t i = 0; i < c; ++i) sum += x.at(m * c + i) * x.at(m * c + i);
    double r = 1 / std::sqrt(sum / c + eps);
    for (int64_t i = 0; i < c; ++i) y[m * c + i] = x.at(m * c + i) * r * (w ? w->at(i) : 1.0);
  }
  return y;
}

TEST_ROWS(RmsNorm, AgreesWithDoublePrecision) {
  for (int64_t c : kWidths)
    for (DType t : kActivations)
      for (DType wt : kWeights) {
        Array x(t, {3, c}), w(wt, {c}), y(t, {3, c});
        double size = c % 2 ? 1e-3 : 30;  // one row size where eps counts, one where it does not
        x.fill_normal(size);
        w.fill([] { return 1 + normal(0.3); });
        rms_norm(rig.ctx, x.view, w.view, 1e-6f, y.view);
        expect_close(y, rms_expected(x, &w, 1e-6), 5e-7, 0,
                     "rms " + std::to_string(c) + " " + text(t) + " " + text(wt));
      }
}

TEST_ROWS(RmsNorm, NeedsNoWeight) {
  for (DType t : kActivations) {
    Array x(t, {5, 512}), y(t, {5, 512});
    x.fill_normal(2);
    rms_norm(rig.ctx, x.view, Tensor(), 1e-6f, y.view);
    expect_close(y, rms_expected(x, nullptr, 1e-6), 5e-7, 0, "rms without weight");
  }
}

TEST_ROWS(RmsNorm, OfAZeroRowIsZero) {
  Array x(DType::kBF16, {1, 64}), y(DType::kBF16, {1, 64});
  x.fill([] { return 0.0; });
  rms_norm(rig.ctx, x.view, Tensor(), 1e-6f, y.view);
  for (int64_t i = 0; i < 64; ++i) EXPECT_EQ(y.at(i), 0.0);
}

TEST_ROWS(RmsNorm, TakesStridedRowsInPlace) {
  for (DType t : kActivations) {
    Array x(t, {4, 96}), w(DType::kBF16, {64});
    x.fill_normal();
    w.fill_normal();
    Array before = x;
    Tensor part = x.view.slice(1, 16, 80);
    rms_norm(rig.ctx, part, w.view, 1e-6f, part);
    Array dense(t, {4, 64});
    for (int64_t i = 0; i < 256; ++i) dense.set(i, before.at(i / 64 * 96 + 16 + i % 64));
    std::vector<double> want = rms_expected(dense, &w, 1e-6);
    for (int64_t i = 0; i < 384; ++i) {
      int64_t m = i / 96, c = i % 96 - 16;
      if (c < 0 || c >= 64) {
        EXPECT_EQ(x.at(i), before.at(i)) << "outside the view";
      } else {
        dense.set(m * 64 + c, x.at(i));
      }
    }
    expect_close(dense, want, 5e-7, 0, "strided");
  }
}

TEST_ROWS(RmsNorm, RowsDoNotDependOnTheStep) {
  Rig one(1, rig.device), four(4, rig.device);
  for (DType t : kActivations)
    for (int64_t c : {64, 255, 4096}) {
      Array x(t, {37, c}), w(DType::kBF16, {c}), together(t, {37, c}), alone(t, {37, c});
      x.fill_normal();
      w.fill_normal();
      rms_norm(four.ctx, x.view, w.view, 1e-6f, together.view);
      for (int64_t m = 0; m < 37; ++m)
        rms_norm(one.ctx, x.view.slice(0, m, m + 1), w.view, 1e-6f, alone.view.slice(0, m, m + 1));
      EXPECT_TRUE(together.same_bits(alone)) << c << " " << text(t);
    }
}

TEST_ROWS(AddRmsNorm, NormsTheUnroundedSum) {
  for (int64_t c : kWidths)
    for (DType t : kActivations) {
      Array r(t, {3, c}), d(t, {3, c}), w(DType::kBF16, {c}), y(t, {3, c});
      r.fill_normal(4);
      d.fill_normal(0.5);
      w.fill_normal();
      std::vector<double> sum(r.size()), want(r.size());
      for (int64_t i = 0; i < r.size(); ++i) sum[i] = r.at(i) + d.at(i);
      for (int64_t m = 0; m < 3; ++m) {
        double squares = 0;
        for (int64_t i = 0; i < c; ++i) squares += sum[m * c + i] * sum[m * c + i];
        for (int64_t i = 0; i < c; ++i)
          want[m * c + i] = sum[m * c + i] / std::sqrt(squares / c + 1e-6) * w.at(i);
      }
      add_rms_norm(rig.ctx, r.view, d.view, w.view, 1e-6f, y.view);
      expect_close(r, sum, 1e-7, 0, "residual");
      expect_close(y, want, 6e-7, 1e-6, "add_rms " + std::to_string(c) + " " + text(t));
    }
}

TEST_ROWS(AddRmsNorm, WithoutDeltaLeavesTheResidual) {
  Array r(DType::kBF16, {2, 64}), w(DType::kBF16, {64}), y(DType::kBF16, {2, 64});
  r.fill_normal();
  w.fill_normal();
  Array before = r;
  add_rms_norm(rig.ctx, r.view, Tensor(), w.view, 1e-6f, y.view);
  EXPECT_TRUE(r.same_bits(before));
  expect_close(y, rms_expected(r, &w, 1e-6), 5e-7, 0, "no delta");
}

TEST(LayerNorm, AgreesWithDoublePrecision) {
  Rig rig;
  for (int64_t c : {1, 2, 17, 64, 128, 1000})
    for (DType t : kActivations)
      for (DType wt : kWeights)
        for (double mean : {0.0, 20.0}) {
          Array x(t, {3, c}), w(wt, {c}), b(wt, {c}), y(t, {3, c});
          x.fill([&] { return mean + normal(); });
          w.fill_normal();
          b.fill_normal();
          std::vector<double> want(x.size());
          for (int64_t m = 0; m < 3; ++m) {
            double sum = 0, squares = 0;
            for (int64_t i = 0; i < c; ++i) sum += x.at(m * c + i);
            for (int64_t i = 0; i < c; ++i) squares += std::pow(x.at(m * c + i) - sum / c, 2);
            for (int64_t i = 0; i < c; ++i)
              want[m * c + i] =
                  (x.at(m * c + i) - sum / c) / std::sqrt(squares / c + 1e-6) * w.at(i) + b.at(i);
          }
          layer_norm(rig.ctx, x.view, w.view, b.view, 1e-6f, y.view);
          expect_close(y, want, 1e-7, 1, "layer norm " + std::to_string(c) + text(t));
        }
}

}  // namespace
}  // namespace hadal::test
