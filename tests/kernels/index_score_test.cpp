// Lightning-indexer scores, every candidate, against double precision and, where the release
// rounds, against the same roundings; and the top-k that reads them.
#include "kernels/index_score.h"

#include "kernels/cpu/amx_index_score.h"
#include "kernels/cpu/avx2_index_score.h"
#include "kernels/cpu/avx512_index_score.h"
#include "kernels/cpu/ref_index_score.h"
#include "kernels/sequences.h"
#include "kernels/topk.h"

namespace hadal::test {
namespace {

struct IndexCandidate {
  const char* name;
  IndexScoreFn* launch;
  bool Device::*needs;
};

const IndexCandidate kCandidates[] = {
    {"ref", ref_index_score, nullptr},
    {"avx2", avx2_index_score, &Device::avx2},
    {"avx512", avx512_index_score, &Device::avx512},
    {"amx", amx_index_score, &Device::amx},
};

struct IndexCase {
  IndexCase(std::vector<int32_t> cached, std::vector<int32_t> fresh, DType t, int64_t heads,
            int64_t d, int ratio, int page_size)
      : rows(std::move(cached), std::move(fresh)),
        ratio(ratio),
        keys(random_history(rows, t, d, 1)),
        q(t, {rows.rows(), heads, d}),
        weights(DType::kF32, {rows.rows(), heads}),
        pages(rows.sequences(), most(), page_size),
        pool(pool_part(pages, keys, [&](size_t s) { return rows.length(s) / ratio; })),
        scores(DType::kF32, {rows.rows(), most() + 3}) {
    q.fill_normal();
    weights.fill([&] { return round_bf16(static_cast<float>(normal(0.1))); });
  }
  int64_t most() const {
    int64_t n = 1;
    for (int64_t s = 0; s < rows.sequences(); ++s) n = std::max(n, rows.length(s) / ratio);
    return n;
  }
  IndexScore call() const {
    IndexScore s;
    s.q = q.view;
    s.weights = weights.view;
    s.keys = pool.view;
    s.table = pages.table;
    s.ratio = ratio;
    s.rows = static_cast<int32_t>(rows.rows());
    s.scores = scores.view;
    return s;
  }
  // q_h . k_j of row t, and the sum of its absolute products.
  double dot(int64_t t, int64_t h, int64_t j, double* size) {
    int64_t d = q.view.shape[2], heads = q.view.shape[1];
    if (q_values.empty()) {
      q_values = q.doubles();
      for (const Array& k : keys) key_values.push_back(k.doubles());
    }
    const double* a = &q_values[(t * heads + h) * d];
    const double* b = &key_values[rows.sequence[t]][j * d];
    double sum = 0;
    *size = 0;
    for (int64_t i = 0; i < d; ++i) {
      sum += a[i] * b[i];
      *size += std::abs(a[i] * b[i]);
    }
    return sum;
  }
  StepRows rows;
  int ratio;
  History keys;
  Array q, weights;
  Pages pages;
  Array pool, scores;
  std::vector<double> q_values;
  std::vector<std::vector<double>> key_values;
};

class IndexScoreOf : public ::testing::TestWithParam<std::tuple<IndexCandidate, DType>> {
 protected:
  void SetUp() override {
    const auto& c = std::get<0>(GetParam());
    if (c.needs && !(this_device().*c.needs))
      GTEST_SKIP() << c.name << " needs a CPU that this is not";
  }
  IndexScoreFn* launch() const { return std::get<0>(GetParam()).launch; }
  DType type() const { return std::get<1>(GetParam()); }
  Rig rig;
};

TEST_P(IndexScoreOf, AgreesWithDoublePrecision) {
  struct Shape {
    int64_t heads, d;
    int ratio, page;
  };
  for (const Shape& s : {Shape{64, 128, 4, 64}, Shape{16, 64, 4, 1}, Shape{8, 128, 1, 64},
                         Shape{3, 32, 1, 16}, Shape{1, 40, 2, 16}, Shape{5, 33, 1, 64}}) {
    IndexCase c({0, 2, 3, 300, 77, 1021}, {6, 1, 2, 3, 1, 4}, type(), s.heads, s.d, s.ratio,
                s.page);
    launch()(rig.ctx, c.rows.batch, c.call());
    int64_t width = c.scores.view.shape[1];
    for (int64_t t = 0; t < c.rows.rows(); ++t)
      for (int64_t j = 0; j < width; ++j) {
        double got = c.scores.at(t * width + j);
        if (j >= (c.rows.positions[t] + 1) / s.ratio) {
          ASSERT_TRUE(std::isnan(got)) << "an invisible score was written";
          continue;
        }
        // An fp32 sum in any order is off by about four unit roundoffs of its absolute terms.
        double want = 0, size = 0;
        for (int64_t h = 0; h < s.heads; ++h) {
          double w = c.weights.at(t * s.heads + h), products;
          want += std::max(0.0, c.dot(t, h, j, &products)) * w;
          size += products * std::abs(w);
        }
        ASSERT_NEAR(got, want, 0x1p-22 * size)
            << "heads " << s.heads << " row " << t << " key " << j;
      }
  }
}

// The release's roundings, step by step. A dot product that lies within the fp32 error of a
// rounding boundary may fall on either side, so the bound is one rounding of the largest term.
TEST_P(IndexScoreOf, RoundsAsTheReleaseDoes) {
  IndexCase c({300}, {4}, type(), 64, 128, 4, 64);
  IndexScore s = c.call();
  s.round_bf16 = true;
  launch()(rig.ctx, c.rows.batch, s);
  int64_t width = c.scores.view.shape[1], same = 0, count = 0;
  for (int64_t t = 0; t < 4; ++t)
    for (int64_t j = 0; j < (c.rows.positions[t] + 1) / 4; ++j) {
      double sum = 0, largest = 0, size;
      for (int64_t h = 0; h < 64; ++h) {
        double dot = std::max(0.0f, round_bf16(static_cast<float>(c.dot(t, h, j, &size))));
        double v = round_bf16(static_cast<float>(dot * c.weights.at(t * 64 + h)));
        sum += v;
        largest = std::max(largest, std::abs(v));
      }
      double want = round_bf16(static_cast<float>(sum)), got = c.scores.at(t * width + j);
      ASSERT_EQ(got, round_bf16(static_cast<float>(got))) << "not a bf16 number";
      ASSERT_NEAR(got, want, 0x1p-7 * (largest + std::abs(want)));
      same += got == want;
      ++count;
    }
  EXPECT_GE(same, count * 95 / 100);
}

TEST_P(IndexScoreOf, WritesOnlyTheRowsAskedFor) {
  IndexCase c({40, 500}, {5, 3}, type(), 8, 64, 4, 16);
  launch()(rig.ctx, c.rows.batch, c.call());
  Array part(DType::kF32, {3, c.scores.view.shape[1]});
  IndexScore s = c.call();
  s.row0 = 4;
  s.rows = 3;
  s.scores = part.view;
  launch()(rig.ctx, c.rows.batch, s);
  EXPECT_EQ(std::memcmp(part.view.data, c.scores.view.at<float>(4), part.view.bytes()), 0);
}

TEST_P(IndexScoreOf, RowsDoNotDependOnTheStepOrTheThreads) {
  for (bool round : {false, true}) {
    IndexCase c({2100, 0, 5}, {9, 40, 1}, type(), 64, 128, 1, 64);
    IndexScore s = c.call();
    s.round_bf16 = round;
    launch()(rig.ctx, c.rows.batch, s);
    for (int threads : {1, 3}) {
      Rig other(threads);
      Array again(DType::kF32, {c.rows.rows(), c.scores.view.shape[1]});
      for (int64_t t = 0; t < c.rows.rows(); ++t) {
        StepRows one({c.rows.positions[t]}, {1});
        IndexScore a = s;
        a.q = c.q.view.slice(0, t, t + 1);
        a.weights = c.weights.view.slice(0, t, t + 1);
        a.table.pages += c.rows.sequence[t] * a.table.stride;
        a.rows = 1;
        a.scores = again.view.slice(0, t, t + 1);
        launch()(other.ctx, one.batch, a);
      }
      EXPECT_TRUE(again.same_bits(c.scores)) << threads << " threads";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Candidates, IndexScoreOf,
                         ::testing::Combine(::testing::ValuesIn(kCandidates),
                                            ::testing::Values(DType::kF32, DType::kBF16)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) +
                                  dtype_name(std::get<1>(info.param));
                         });

TEST(IndexWeights, ScalesAndRoundsOnce) {
  Rig rig;
  for (DType t : {DType::kF32, DType::kBF16})
    for (bool round : {false, true}) {
      Array raw(t, {300, 64}), out(DType::kF32, {300, 64});
      raw.fill_normal();
      const float scale = 0.0110485435f;
      index_weights(rig.ctx, raw.view, scale, round, out.view);
      for (int64_t i = 0; i < out.size(); ++i) {
        float v = static_cast<float>(raw.at(i) * double{scale});
        ASSERT_EQ(out.at(i), round ? round_bf16(v) : v);
      }
    }
}

// The best k by full sort: larger first, then lower index; NaN last.
std::vector<int64_t> best(const Array& scores, int64_t row, int64_t visible, int64_t k) {
  int64_t width = scores.view.shape[1];
  std::vector<int64_t> order(visible);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    double x = scores.at(row * width + a), y = scores.at(row * width + b);
    return std::isnan(y) ? !std::isnan(x) : x > y;
  });
  order.resize(std::min(visible, k));
  std::sort(order.begin(), order.end());
  order.resize(k, -1);
  return order;
}

void check_topk(const Array& scores, const StepRows& rows, int64_t k, int ratio) {
  Rig rig;
  Array out(DType::kI32, {rows.rows(), k});
  topk(rig.ctx, rows.batch, 0, scores.view, ratio, out.view);
  for (int64_t t = 0; t < rows.rows(); ++t) {
    std::vector<int64_t> want = best(scores, t, (rows.positions[t] + 1) / ratio, k);
    for (int64_t i = 0; i < k; ++i)
      ASSERT_EQ(out.at(t * k + i), want[i]) << "k " << k << " row " << t << " place " << i;
  }
}

TEST(TopK, EqualsASortOverSizesAndTies) {
  StepRows rows({0, 130, 2000}, {9, 3, 3});
  for (int ratio : {1, 4})
    for (int64_t k : {1, 2, 6, 32, 512, 2048})
      for (int kind = 0; kind < 5; ++kind) {
        Array scores(DType::kF32, {rows.rows(), 2003});
        scores.fill([&]() -> double {
          if (kind == 0) return normal();
          if (kind == 1) return static_cast<double>(uniform(-3, 3));  // many ties
          if (kind == 2) return uniform(0, 1) ? 0.0 : -0.0;           // one value, two signs
          if (kind == 3) return -std::exp2(static_cast<double>(uniform(-140, 120)));
          return round_bf16(static_cast<float>(normal()));  // as the release scores
        });
        check_topk(scores, rows, k, ratio);
        if (::testing::Test::HasFatalFailure()) return;
      }
}

TEST(TopK, PutsInfinitiesAtTheEndsAndNanLast) {
  StepRows rows({7}, {1});
  Array scores(DType::kF32, {1, 8});
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double v[] = {nan, -inf, 3, inf, nan, -2, inf, 0};
  for (int i = 0; i < 8; ++i) scores.set(i, v[i]);
  for (int64_t k = 1; k <= 8; ++k) check_topk(scores, rows, k, 1);
}

TEST(TopK, ReadsTheRowsOfALaterPartOfTheStep) {
  Rig rig;
  StepRows rows({10, 100}, {4, 4});
  Array scores(DType::kF32, {3, 110}), out(DType::kI32, {3, 5});
  scores.fill_normal();
  topk(rig.ctx, rows.batch, 4, scores.view, 1, out.view);
  for (int64_t i = 0; i < 3; ++i) {
    std::vector<int64_t> want = best(scores, i, 101 + i, 5);
    for (int64_t j = 0; j < 5; ++j) EXPECT_EQ(out.at(i * 5 + j), want[j]);
  }
}

}  // namespace
}  // namespace hadal::test
