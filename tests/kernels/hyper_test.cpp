// mHC against double precision, every candidate, on inputs that bring faults to light: rows of
// different sizes, one dominant stream, mixes that are not near the middle of their sigmoids,
// widths and row counts around every block size.
#include "kernels/hyper.h"

#include "kernels/cpu/avx2_hyper.h"
#include "kernels/cpu/avx512_hyper.h"
#include "kernels/cpu/ref_hyper.h"
#include "kernels/op_rig.h"

namespace hadal::test {
namespace {

struct HyperCandidate {
  const char* name;
  HyperPreFn* launch;
  bool Device::*needs;
};

const HyperCandidate kCandidates[] = {
    {"ref", ref_hyper_pre, nullptr},
    {"avx2", avx2_hyper_pre, &Device::avx2},
    {"avx512", avx512_hyper_pre, &Device::avx512},
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct Maps {
  std::vector<double> pre, post, comb;
};

// Spec V4 3.8, in double.
Maps maps_of(const std::vector<double>& m, int r, const std::function<double(int)>& base,
             const std::function<double(int)>& scale, int iterations, double he) {
  Maps out{std::vector<double>(r), std::vector<double>(r), std::vector<double>(r * r)};
  for (int j = 0; j < r; ++j) out.pre[j] = sigmoid(m[j] * scale(0) + base(j)) + he;
  for (int k = 0; k < r; ++k) out.post[k] = 2 * sigmoid(m[r + k] * scale(1) + base(r + k));
  auto& c = out.comb;
  for (int i = 0; i < r * r; ++i) c[i] = m[2 * r + i] * scale(2) + base(2 * r + i);
  auto columns = [&] {
    for (int k = 0; k < r; ++k) {
      double sum = he;
      for (int j = 0; j < r; ++j) sum += c[j * r + k];
      for (int j = 0; j < r; ++j) c[j * r + k] /= sum;
    }
  };
  for (int j = 0; j < r; ++j) {
    double top = *std::max_element(&c[j * r], &c[j * r] + r), sum = 0;
    for (int k = 0; k < r; ++k) sum += c[j * r + k] = std::exp(c[j * r + k] - top);
    for (int k = 0; k < r; ++k) c[j * r + k] = c[j * r + k] / sum + he;
  }
  columns();
  for (int i = 1; i < iterations; ++i) {
    for (int j = 0; j < r; ++j) {
      double sum = he;
      for (int k = 0; k < r; ++k) sum += c[j * r + k];
      for (int k = 0; k < r; ++k) c[j * r + k] /= sum;
    }
    columns();
  }
  return out;
}

struct HyperCase {
  HyperCase(int64_t t, int64_t r, int64_t c, DType type)
      : x(type, {t, r, c}),
        fn(DType::kF32, {2 * r + r * r, r * c}),
        base(DType::kF32, {2 * r + r * r}),
        scale(DType::kF32, {3}),
        y(type, {t, c}),
        post(DType::kF32, {t, r}),
        comb(DType::kF32, {t, r, r}) {
    base.fill_normal(1);
    scale.fill([] { return 0.5 + std::abs(normal()); });
  }
  HyperWeights weights() const { return {fn.view, base.view, scale.view}; }
  void run(HyperPreFn* launch, Rig& rig) {
    launch(rig.ctx, x.view, weights(), params, y.view, post.view, comb.view);
  }
  std::vector<double> mixes(int64_t t) const {
    int64_t n = fn.view.shape[0], width = fn.view.shape[1];
    double squares = 0;
    for (int64_t i = 0; i < width; ++i) squares += std::pow(x.at(t * width + i), 2);
    std::vector<double> m(n);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t k = 0; k < width; ++k) m[i] += fn.at(i * width + k) * x.at(t * width + k);
      m[i] /= std::sqrt(squares / width + params.norm_eps);
    }
    return m;
  }
  Maps maps(int64_t t) const {
    return maps_of(
        mixes(t), static_cast<int>(x.view.shape[1]), [&](int i) { return base.at(i); },
        [&](int i) { return scale.at(i); }, params.sinkhorn_iters, params.eps);
  }
  // Compares rows [begin, end).
  void expect_rows(int64_t begin, int64_t end, const std::string& what) const {
    int64_t r = x.view.shape[1], c = x.view.shape[2];
    for (int64_t t = begin; t < end; ++t) {
      Maps want = maps(t);
      for (int64_t i = 0; i < r; ++i)
        ASSERT_NEAR(post.at(t * r + i), want.post[i], 2e-6) << what << " post, row " << t;
      for (int64_t i = 0; i < r * r; ++i)
        ASSERT_NEAR(comb.at(t * r * r + i), want.comb[i], 3e-6) << what << " comb, row " << t;
      for (int64_t i = 0; i < c; ++i) {
        double sum = 0, mass = 0;
        for (int64_t j = 0; j < r; ++j) {
          double v = want.pre[j] * x.at((t * r + j) * c + i);
          sum += v;
          mass += std::abs(v);
        }
        double bound = 1.001 * unit_roundoff(y.view.dtype) * std::abs(sum) + 2e-6 * mass;
        ASSERT_NEAR(y.at(t * c + i), sum, bound) << what << " y, row " << t << " column " << i;
      }
    }
  }
  Array x, fn, base, scale, y, post, comb;
  HyperParams params;
};

enum class Input { kNormal, kRowScaled, kLoudStream };

HyperCase make_case(int64_t t, int64_t r, int64_t c, DType type, Input input) {
  HyperCase h(t, r, c, type);
  for (int64_t i = 0; i < h.x.size(); ++i) {
    int64_t row = i / (r * c), stream = i / c % r;
    double size = input == Input::kRowScaled                       ? static_cast<double>(row + 1)
                  : input == Input::kLoudStream && stream == r - 1 ? 100.0
                                                                   : 1.0;
    h.x.set(i, size * normal());
  }
  h.fn.fill_normal(1 / std::sqrt(static_cast<double>(r * c)));  // mixes of standard deviation 1
  return h;
}

class HyperPreOf : public ::testing::TestWithParam<std::tuple<HyperCandidate, DType>> {
 protected:
  void SetUp() override {
    const auto& c = std::get<0>(GetParam());
    if (c.needs && !(this_device().*c.needs))
      GTEST_SKIP() << c.name << " needs a CPU that this is not";
  }
  HyperPreFn* launch() const { return std::get<0>(GetParam()).launch; }
  DType type() const { return std::get<1>(GetParam()); }
  Rig rig;
};

TEST_P(HyperPreOf, MatchesTheCheckVector) {
  // One-hot rows make the mixes: a column of 1 after normalisation, times m_i.
  HyperCase h(1, 4, 2, type());
  const double x[] = {1, 2, 3, -4, -5, 6, 7, 8};
  double squares = 0;
  for (int i = 0; i < 8; ++i) h.x.set(i, x[i]), squares += x[i] * x[i];
  double factor = 1 / std::sqrt(squares / 8 + 1e-6);
  for (int i = 0; i < 24; ++i) {
    for (int k = 0; k < 8; ++k) h.fn.set(i * 8 + k, 0);
    h.fn.set(i * 8, ((37 * i + 11) % 41 - 20) / 8.0 / factor);
    h.base.set(i, ((5 * i + 3) % 7 - 3) / 4.0);
  }
  h.scale.set(0, 0.5);
  h.scale.set(1, 1.5);
  h.scale.set(2, 0.75);
  h.run(launch(), rig);
  const double post[] = {1.8798267, 1.6351490, 1.7615942, 1.3583574};
  const double comb[] = {0.1464349, 0.4856005, 0.2162429, 0.1517207, 0.0082198, 0.0272572,
                         0.5668263, 0.3976957, 0.4967878, 0.2862808, 0.1274842, 0.0894462,
                         0.3485564, 0.2008605, 0.0894456, 0.3611365};
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(h.post.at(i), post[i], 4e-7);
  for (int i = 0; i < 16; ++i) EXPECT_NEAR(h.comb.at(i), comb[i], 4e-7);
  bool bf16 = type() == DType::kBF16;
  EXPECT_NEAR(h.y.at(0), 4.6096798, bf16 ? 0x1p-8 * 4.7 : 2e-6);
  EXPECT_NEAR(h.y.at(1), 8.9532988, bf16 ? 0x1p-8 * 9 : 4e-6);

  Array a(type(), {1, 2});
  a.set(0, 10);
  a.set(1, -20);
  hyper_post(rig.ctx, a.view, h.post.view, h.comb.view, h.x.view);
  const double expanded[] = {18.9253171, -31.5673653, 16.8934811, -28.5162379,
                             19.5213620, -35.5862328, 17.0091059, -25.0287201};
  for (int i = 0; i < 8; ++i)
    EXPECT_NEAR(h.x.at(i), expanded[i], std::abs(expanded[i]) * (bf16 ? 0x1p-8 : 3e-7));
}

TEST_P(HyperPreOf, AgreesOverRowCounts) {
  for (int64_t t : {0, 1, 2, 3, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129})
    for (Input input : {Input::kNormal, Input::kRowScaled, Input::kLoudStream}) {
      HyperCase h = make_case(t, 4, 64, type(), input);
      h.run(launch(), rig);
      h.expect_rows(0, t, "T " + std::to_string(t));
      if (HasFatalFailure()) return;
    }
}

TEST_P(HyperPreOf, AgreesOverWidths) {
  for (int64_t c : {1, 5, 16, 192, 255, 256, 1000, 4096, 7168})
    for (Input input : {Input::kNormal, Input::kLoudStream}) {
      HyperCase h = make_case(c > 1000 ? 2 : 5, 4, c, type(), input);
      h.run(launch(), rig);
      h.expect_rows(0, h.x.view.shape[0], "C " + std::to_string(c));
      if (HasFatalFailure()) return;
    }
}

TEST_P(HyperPreOf, AgreesWithOtherNumbersOfStreams) {
  for (int64_t r : {1, 2, 3, 8}) {
    HyperCase h = make_case(3, r, 96, type(), Input::kNormal);
    h.params.sinkhorn_iters = 3;
    h.params.eps = 1e-4f;
    h.run(launch(), rig);
    h.expect_rows(0, 3, "R " + std::to_string(r));
  }
}

// Mixes of +-60: sigmoids at their ends, a softmax that is all but one-hot.
TEST_P(HyperPreOf, StaysFiniteAtSteepMixes) {
  HyperCase h = make_case(9, 4, 64, type(), Input::kNormal);
  for (int64_t i = 0; i < h.fn.size(); ++i) h.fn.set(i, 20 * h.fn.at(i));
  h.run(launch(), rig);
  for (int64_t i = 0; i < h.comb.size(); ++i)
    ASSERT_TRUE(h.comb.at(i) >= 0 && h.comb.at(i) <= 1.001);
  for (int64_t i = 0; i < h.y.size(); ++i) ASSERT_TRUE(std::isfinite(h.y.at(i)));
}

TEST_P(HyperPreOf, CombIsNearlyDoublyStochastic) {
  HyperCase h = make_case(40, 4, 64, type(), Input::kNormal);
  h.base.fill([] { return 0.0; });
  h.scale.fill([] { return 1.0; });  // logits of standard deviation 1
  h.run(launch(), rig);
  for (int64_t t = 0; t < 40; ++t)
    for (int i = 0; i < 4; ++i) {
      double row = 0, column = 0;
      for (int k = 0; k < 4; ++k) {
        row += h.comb.at(t * 16 + i * 4 + k);
        column += h.comb.at(t * 16 + k * 4 + i);
      }
      EXPECT_NEAR(row, 1, 1e-3);
      EXPECT_NEAR(column, 1, 1e-5);
    }
}

TEST_P(HyperPreOf, ReadsStridedStreams) {
  HyperCase h = make_case(3, 4, 128, type(), Input::kNormal);
  Array wide(type(), {3, 4, 160});
  for (int64_t i = 0; i < h.x.size(); ++i) wide.set(i / 128 * 160 + 32 + i % 128, h.x.at(i));
  launch()(rig.ctx, wide.view.slice(2, 32, 160), h.weights(), h.params, h.y.view, h.post.view,
           h.comb.view);
  h.expect_rows(0, 3, "strided");
}

TEST_P(HyperPreOf, RowsDoNotDependOnTheStepOrTheThreads) {
  for (int64_t c : {64, 255, 1280}) {
    HyperCase all = make_case(37, 4, c, type(), Input::kRowScaled);
    all.run(launch(), rig);
    for (int threads : {1, 3}) {
      Rig other(threads);
      HyperCase again = all;
      for (int64_t t = 0; t < 37; ++t) {
        int64_t n = std::min<int64_t>(37, t + 1 + t % 3);
        launch()(other.ctx, again.x.view.slice(0, t, n), again.weights(), again.params,
                 again.y.view.slice(0, t, n), again.post.view.slice(0, t, n),
                 again.comb.view.slice(0, t, n));
      }
      EXPECT_TRUE(again.y.same_bits(all.y) && again.post.same_bits(all.post) &&
                  again.comb.same_bits(all.comb))
          << "C " << c << ", " << threads << " threads";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Candidates, HyperPreOf,
                         ::testing::Combine(::testing::ValuesIn(kCandidates),
                                            ::testing::Values(DType::kF32, DType::kBF16)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) +
                                  dtype_name(std::get<1>(info.param));
                         });

TEST_ROWS(HyperPost, MapsSourcesToDestinations) {
  for (DType type : {DType::kF32, DType::kBF16})
    for (int64_t r : {1, 2, 4, 8})
      for (int64_t c : {1, 16, 255, 2500}) {
        Array x(type, {3, r, c}), a(type, {3, c}), post(DType::kF32, {3, r}),
            comb(DType::kF32, {3, r, r});
        x.fill_normal(5);
        a.fill_normal(2);
        post.fill_normal();
        comb.fill_normal();
        Array old = x;
        hyper_post(rig.ctx, a.view, post.view, comb.view, x.view);
        std::vector<double> want(x.size());
        for (int64_t i = 0; i < x.size(); ++i) {
          int64_t t = i / (r * c), k = i / c % r, col = i % c;
          want[i] = post.at(t * r + k) * a.at(t * c + col);
          for (int64_t j = 0; j < r; ++j)
            want[i] += comb.at((t * r + j) * r + k) * old.at((t * r + j) * c + col);
        }
        expect_close(x, want, 1e-6, 10, "post");
      }
}

TEST_ROWS(HyperHead, AgreesWithDoublePrecision) {
  for (DType type : {DType::kF32, DType::kBF16})
    for (int64_t r : {2, 4})
      for (int64_t c : {64, 255, 4096}) {
        Array x(type, {3, r, c}), fn(DType::kF32, {r, r * c}), base(DType::kF32, {r}),
            scale(DType::kF32, {1}), y(type, {3, c});
        x.fill_normal(3);
        fn.fill_normal(1 / std::sqrt(static_cast<double>(r * c)));
        base.fill_normal();
        scale.set(0, 0.8);
        hyper_head(rig.ctx, x.view, {fn.view, base.view, scale.view}, {}, y.view);
        std::vector<double> want(y.size());
        for (int64_t t = 0; t < 3; ++t) {
          double squares = 0;
          for (int64_t i = 0; i < r * c; ++i) squares += std::pow(x.at(t * r * c + i), 2);
          for (int64_t j = 0; j < r; ++j) {
            double m = 0;
            for (int64_t i = 0; i < r * c; ++i) m += fn.at(j * r * c + i) * x.at(t * r * c + i);
            m /= std::sqrt(squares / (r * c) + 1e-6);
            double pre = sigmoid(m * scale.at(0) + base.at(j)) + 1e-6;
            for (int64_t i = 0; i < c; ++i) want[t * c + i] += pre * x.at((t * r + j) * c + i);
          }
        }
        expect_close(y, want, 1e-6, 5, "head");
      }
}

}  // namespace
}  // namespace hadal::test
