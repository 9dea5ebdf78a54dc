// The router against a double-precision selection over the released shapes and hostile biases, and
// the sort of its pairs.
#include "kernels/moe_route.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "kernels/op_rig.h"

namespace hadal::test {
namespace {

struct Shape {
  int64_t experts;
  int groups, kept, k;
};
const Shape kShapes[] = {{256, 8, 4, 8}, {384, 1, 1, 8},  {896, 1, 1, 16}, {128, 8, 2, 2},
                         {16, 8, 2, 2},  {512, 1, 1, 22}, {256, 1, 1, 6},  {8, 1, 1, 2},
                         {4, 1, 1, 4},   {8, 8, 3, 3}};

double score_of(RouterScore kind, double x) {
  if (kind == RouterScore::kSigmoid) return 1 / (1 + std::exp(-x));
  return std::sqrt(x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)));
}

// A double-precision selection and how far it is from another one.
struct Selection {
  std::set<int64_t> ids, groups;
  double gap;
};

Selection select(const Router& r, const std::vector<double>& biased) {
  int64_t e = static_cast<int64_t>(biased.size()), size = e / r.groups;
  auto ranked = [](const std::vector<double>& v) {
    std::vector<int64_t> order(v.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return v[a] > v[b]; });
    return order;
  };
  Selection s{{}, {}, 1e9};
  std::vector<double> sums(r.groups);
  for (int g = 0; g < r.groups; ++g) {
    std::vector<double> part(biased.begin() + g * size, biased.begin() + (g + 1) * size);
    std::sort(part.rbegin(), part.rend());
    sums[g] = part[0] + (size > 1 ? part[1] : 0);
  }
  auto group_order = ranked(sums);
  s.groups.insert(group_order.begin(), group_order.begin() + r.kept_groups);
  if (r.kept_groups < r.groups)
    s.gap = sums[group_order[r.kept_groups - 1]] - sums[group_order[r.kept_groups]];
  std::vector<double> masked = biased;
  for (int64_t i = 0; i < e; ++i)
    if (!s.groups.count(i / size)) masked[i] = -1e300;
  auto order = ranked(masked);
  s.ids.insert(order.begin(), order.begin() + r.k);
  if (r.k < e) s.gap = std::min(s.gap, masked[order[r.k - 1]] - masked[order[r.k]]);
  return s;
}

struct Routed {
  Array chosen, weights;
};

Routed run_route(const Router& r, const Array& logits, const int32_t* ids = nullptr) {
  Rig rig;
  int64_t t = logits.view.shape[0];
  Routed out{Array(DType::kI32, {t, r.k}), Array(DType::kF32, {t, r.k})};
  route(rig.ctx, logits.view, ids, r, out.chosen.view, out.weights.view);
  return out;
}

Router router_of(const Shape& s, RouterScore score) {
  Router r;
  r.score = score;
  r.groups = s.groups;
  r.kept_groups = s.kept;
  r.k = s.k;
  return r;
}

// Ids equal to the double selection wherever its gap exceeds `resolution`, weights within 1e-5.
void check_rows(const Router& r, const Array& logits, const Array* bias, double resolution) {
  int64_t e = logits.view.shape[1];
  Routed got = run_route(r, logits);
  int64_t decided = 0;
  for (int64_t t = 0; t < logits.view.shape[0]; ++t) {
    std::vector<double> score(e), biased(e);
    for (int64_t i = 0; i < e; ++i) {
      score[i] = score_of(r.score, logits.at(t * e + i));
      biased[i] = score[i] + (bias ? bias->at(i) : 0.0);
    }
    Selection want = select(r, biased);
    std::set<int64_t> ids;
    double sum = 0, weight_sum = 0;
    for (int k = 0; k < r.k; ++k) {
      int64_t id = static_cast<int64_t>(got.chosen.at(t * r.k + k));
      ASSERT_TRUE(id >= 0 && id < e);
      ids.insert(id);
      sum += score[id];
    }
    ASSERT_EQ(static_cast<int>(ids.size()), r.k) << "an expert was chosen twice";
    for (int k = 0; k < r.k; ++k) {
      int64_t id = static_cast<int64_t>(got.chosen.at(t * r.k + k));
      double w = score[id] / (r.normalize ? sum : 1) * r.scale;
      ASSERT_NEAR(got.weights.at(t * r.k + k), w, 1e-5 * w) << "row " << t;
      weight_sum += got.weights.at(t * r.k + k);
    }
    if (r.normalize) {
      ASSERT_NEAR(weight_sum, r.scale, 1e-5 * r.scale);
    }
    if (want.gap > resolution) {
      ++decided;
      ASSERT_EQ(ids, want.ids) << "E " << e << " row " << t << " gap " << want.gap;
    }
  }
  ASSERT_GE(decided, logits.view.shape[0] * 9 / 10);
}

TEST(Route, ChoosesAsDoublePrecisionDoes) {
  for (const Shape& s : kShapes)
    for (RouterScore kind : {RouterScore::kSigmoid, RouterScore::kSqrtSoftplus})
      for (double scale : {1.0, 1.5, 2.5, 2.827}) {
        Router r = router_of(s, kind);
        r.scale = static_cast<float>(scale);
        r.normalize = scale != 1.5;
        Array logits(DType::kF32, {33, s.experts}), bias(DType::kF32, {s.experts});
        logits.fill([] { return -2 + normal(); });
        bias.fill([] { return 0.2 + normal(0.1); });
        r.bias = bias.view;
        check_rows(r, logits, &bias, 1e-6);
        if (HasFatalFailure()) return;
      }
}

// The fp32 sum of score and bias resolves half a spacing of the bias (spec V3.2 12.1: 4e-6
// at 34.5).
TEST(Route, KeepsItsChoiceUnderLargeAndNegativeBiases) {
  for (const Shape& s : kShapes)
    for (double offset : {5.0, 34.5, -3.0, 50.0, -50.0}) {
      Router r = router_of(s, RouterScore::kSigmoid);
      Array logits(DType::kF32, {64, s.experts}), bias(DType::kF32, {s.experts});
      logits.fill([] { return -2 + normal(); });
      bias.fill([&] { return offset + normal(0.1); });
      r.bias = bias.view;
      check_rows(r, logits, &bias, (std::abs(offset) > 30 ? 4e-6 : 1e-6) * (s.groups > 1 ? 4 : 1));
      if (HasFatalFailure()) return;
    }
}

TEST(Route, AConstantBiasChangesNothing) {
  for (const Shape& s : kShapes) {
    Router r = router_of(s, RouterScore::kSigmoid);
    Array logits(DType::kF32, {64, s.experts}), bias(DType::kF32, {s.experts});
    logits.fill([] { return normal(); });
    Routed plain = run_route(r, logits);
    bias.fill([] { return 0.5; });
    r.bias = bias.view;
    check_rows(r, logits, &bias, 1e-6);
    Routed biased = run_route(r, logits);
    int64_t same = 0;
    for (int64_t i = 0; i < plain.chosen.size(); ++i)
      same += plain.chosen.at(i) == biased.chosen.at(i);
    EXPECT_GE(same, plain.chosen.size() * 99 / 100);
  }
}

TEST(Route, TiesGoToTheLowerIndex) {
  for (const Shape& s : kShapes) {
    Router r = router_of(s, RouterScore::kSqrtSoftplus);
    Array logits(DType::kF32, {2, s.experts});
    logits.fill([] { return 0.25; });
    Routed got = run_route(r, logits);
    for (int k = 0; k < s.k; ++k) {
      EXPECT_EQ(got.chosen.at(k), k);
      EXPECT_NEAR(got.weights.at(k), 1.0 / s.k, 1e-6);
    }
  }
}

TEST(Route, NegativeBiasedScoresBeatDroppedGroups) {
  // Every legal score is negative: a mask of 0 instead of -inf would choose dropped experts.
  Router r = router_of({16, 8, 2, 3}, RouterScore::kSigmoid);
  Array logits(DType::kF32, {1, 16}), bias(DType::kF32, {16});
  logits.fill([] { return -3.0; });
  bias.fill([] { return -2.0; });
  bias.set(6, -1.0);
  bias.set(15, -1.5);
  r.bias = bias.view;
  Routed got = run_route(r, logits);
  EXPECT_EQ(got.chosen.at(0), 6);
  EXPECT_EQ(got.chosen.at(1), 15);
  EXPECT_EQ(got.chosen.at(2), 7);
}

TEST(Route, ANanLogitSpoilsItsRowAlone) {
  for (RouterScore kind : {RouterScore::kSigmoid, RouterScore::kSqrtSoftplus}) {
    Router r = router_of({256, 8, 4, 8}, kind);
    Array logits(DType::kF32, {3, 256});
    logits.fill([] { return normal(); });
    logits.set(256 + 77, std::numeric_limits<double>::quiet_NaN());
    Routed got = run_route(r, logits);
    for (int64_t i = 0; i < 24; ++i) {
      EXPECT_EQ(got.chosen.at(i) == -1, i / 8 == 1);
      EXPECT_EQ(std::isnan(got.weights.at(i)), i / 8 == 1);
    }
  }
}

TEST(Route, WeightsStayFiniteAtTheEnds) {
  for (RouterScore kind : {RouterScore::kSigmoid, RouterScore::kSqrtSoftplus})
    for (double logit : {-200.0, -104.0, -88.0, 80.0, 3e4}) {
      Router r = router_of({16, 1, 1, 4}, kind);
      Array logits(DType::kF32, {1, 16});
      logits.fill([&] { return logit; });
      Routed got = run_route(r, logits);
      for (int k = 0; k < 4; ++k) {
        EXPECT_EQ(got.chosen.at(k), k);
        EXPECT_TRUE(std::isfinite(got.weights.at(k))) << logit;
        EXPECT_TRUE(logit < 0 || std::abs(got.weights.at(k) - 0.25) < 1e-6);
      }
    }
}

TEST(Route, HashLayersTakeIdsFromTheTableAndWeightsFromTheScores) {
  Rig rig;
  Router r = router_of({8, 1, 1, 3}, RouterScore::kSqrtSoftplus);
  r.scale = 1.5f;
  Array table(DType::kI64, {5, 3});
  const int64_t rows[] = {0, 3, 5, 1, 1, 7, 2, 6, 4, 7, 0, 2, 3, 4, 5};  // token 1 repeats an id
  std::memcpy(table.view.data, rows, sizeof rows);
  r.table = table.view;
  Array logits(DType::kF32, {3, 8});
  logits.fill([] { return normal(2); });
  const int32_t ids[] = {1, 4, 1};
  Routed got = run_route(r, logits, ids);
  for (int64_t t = 0; t < 3; ++t) {
    double sum = 0;
    for (int k = 0; k < 3; ++k) sum += score_of(r.score, logits.at(t * 8 + rows[ids[t] * 3 + k]));
    for (int k = 0; k < 3; ++k) {
      int64_t id = rows[ids[t] * 3 + k];
      EXPECT_EQ(got.chosen.at(t * 3 + k), id);
      EXPECT_NEAR(got.weights.at(t * 3 + k), score_of(r.score, logits.at(t * 8 + id)) / sum * 1.5,
                  1e-6);
    }
  }
}

TEST(Route, RowsMayBeStridedAndDoNotDependOnTheStep) {
  Rig one(1), four(4);
  Router r = router_of({256, 8, 4, 8}, RouterScore::kSigmoid);
  Array wide(DType::kF32, {40, 300});
  wide.fill([] { return normal(); });
  Tensor logits = wide.view.slice(1, 20, 276);
  Array c1(DType::kI32, {40, 18}), w1(DType::kF32, {40, 18}), c2 = c1, w2 = w1;
  route(four.ctx, logits, nullptr, r, c1.view.slice(1, 0, 8), w1.view.slice(1, 0, 8));
  for (int64_t t = 0; t < 40; ++t)
    route(one.ctx, logits.slice(0, t, t + 1), nullptr, r, c2.view.slice(0, t, t + 1).slice(1, 0, 8),
          w2.view.slice(0, t, t + 1).slice(1, 0, 8));
  EXPECT_TRUE(c1.same_bits(c2) && w1.same_bits(w2));
  EXPECT_EQ(c1.at(8), -1) << "past the row's k: untouched";
}

TEST(MoeSort, GroupsPairsByExpertInOrder) {
  Rig rig;
  for (int64_t t : {0, 1, 7, 200})
    for (int64_t experts : {1, 8, 384}) {
      const int64_t k = 6;
      Array chosen(DType::kI32, {t, k});
      chosen.fill([&] { return static_cast<double>(uniform(-1, experts - 1)); });
      std::vector<int32_t> offsets(experts + 1, -7), pair(t * k + 1, -7), row(t * k + 1, -7);
      moe_sort(rig.ctx, chosen.view, 0, experts, offsets.data(), pair.data(), row.data());
      int64_t at = 0;
      for (int64_t e = 0; e < experts; ++e) {
        ASSERT_EQ(offsets[e], at);
        for (int64_t p = 0; p < t * k; ++p)
          if (chosen.at(p) == static_cast<double>(e)) {
            ASSERT_EQ(pair[at], p);
            ASSERT_EQ(row[at], p / k);
            ++at;
          }
      }
      ASSERT_EQ(offsets[experts], at);
    }
}

}  // namespace
}  // namespace hadal::test
