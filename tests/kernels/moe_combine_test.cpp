// The gated activation, the sum over experts, and the exponential that the activation uses.
#include "kernels/moe_combine.h"

#include <algorithm>
#include <numeric>

#include "kernels/cpu/exp.h"
#include "kernels/moe_route.h"
#include "kernels/op_rig.h"

namespace hadal::test {
namespace {

TEST(ExpApprox, IsWithinTwoUlpOverItsRange) {
  double worst = 0;
  for (float x = -87.3f; x < 88.7f; x += 1.1e-4f) {
    double want = std::exp(double{x}), ulp = std::ldexp(1, std::ilogb(want) - 23);
    worst = std::max(worst, std::abs(exp_approx(x) - want) / ulp);
  }
  EXPECT_LE(worst, 2.0);
  EXPECT_EQ(exp_approx(0.0f), 1.0f);
  EXPECT_EQ(exp_approx(-0.0f), 1.0f);
}

TEST(ExpApprox, StaysFiniteOutsideAndKeepsNan) {
  const float inf = std::numeric_limits<float>::infinity();
  for (float x : {-88.0f, -104.0f, -1e4f, -inf}) EXPECT_LE(exp_approx(x), 1.2e-38f);
  for (float x : {-88.0f, -104.0f, -1e4f, -inf}) EXPECT_GE(exp_approx(x), 0.0f);
  for (float x : {89.0f, 1e4f, inf}) EXPECT_GE(exp_approx(x), 3e38f);
  EXPECT_TRUE(std::isnan(exp_approx(std::numeric_limits<float>::quiet_NaN())));
}

double silu(double x) { return x / (1 + std::exp(-x)); }

TEST_ROWS(SwiGlu, AgreesWithDoublePrecision) {
  for (DType t : {DType::kF32, DType::kBF16})
    for (int64_t n : {1, 15, 32, 511, 512, 513, 2048})
      for (float limit : {0.0f, 0.6f, 10.0f}) {
        Array g(t, {4, n}), u(t, {4, n}), y(t, {4, n});
        g.fill_normal(limit > 1 ? 12 : 3);
        u.fill_normal(limit > 1 ? 12 : 3);
        g.set(0, -300);
        if (n > 2) g.set(2, 100);
        const float weights[] = {0.1f, 0.7f, 2.5f, 1.0f};
        const int32_t pair[] = {2, 0, 3, 1};
        std::vector<double> want(g.size());
        auto expected = [&](bool weighted) {
          for (int64_t i = 0; i < g.size(); ++i) {
            double gv = g.at(i), uv = u.at(i);
            if (limit > 0) {
              gv = std::min<double>(gv, limit);
              uv = std::clamp<double>(uv, -limit, limit);
            }
            want[i] = silu(gv) * uv * (weighted ? weights[pair[i / n]] : 1.0);
          }
        };
        std::string what = text(t) + " " + std::to_string(n) + " limit " + std::to_string(limit);
        expected(false);
        swiglu(rig.ctx, g.view, u.view, limit, nullptr, nullptr, nullptr, y.view);
        expect_close(y, want, 6e-7, 1e-25, what);
        expected(true);
        swiglu(rig.ctx, g.view, u.view, limit, weights, pair, nullptr, g.view);
        expect_close(g, want, 6e-7, 1e-25, what + " weighted, in place");
      }
}

TEST_ROWS(SwiGlu, KeepsNanAndRowsDoNotDependOnTheStep) {
  Rig one(1, rig.device), four(4, rig.device);
  Array g(DType::kBF16, {19, 1030}), u(DType::kBF16, {19, 1030}), y(DType::kBF16, {19, 1030});
  g.fill_normal();
  u.fill_normal();
  g.set(5, std::numeric_limits<double>::quiet_NaN());
  Array alone = y;
  swiglu(four.ctx, g.view, u.view, 10, nullptr, nullptr, nullptr, y.view);
  for (int64_t m = 0; m < 19; ++m)
    swiglu(one.ctx, g.view.slice(0, m, m + 1), u.view.slice(0, m, m + 1), 10, nullptr, nullptr,
           nullptr, alone.view.slice(0, m, m + 1));
  EXPECT_TRUE(y.same_bits(alone));
  EXPECT_TRUE(std::isnan(y.at(5)));
}

TEST_ROWS(SwiGlu, LeavesRowsThatHoldNothing) {
  Array g(DType::kF32, {6, 300}), u(DType::kF32, {6, 300}), y(DType::kF32, {6, 300});
  for (int64_t i = 0; i < 4 * 300; ++i) {
    g.set(i, normal());
    u.set(i, normal());
  }
  const int32_t used = 4;
  swiglu(rig.ctx, g.view, u.view, 10, nullptr, nullptr, &used, y.view);
  for (int64_t i = 0; i < 6 * 300; ++i) EXPECT_EQ(std::isnan(y.at(i)), i >= 4 * 300) << i;
  const uint8_t* rest = static_cast<const uint8_t*>(y.view.data) + 4 * 300 * 4;
  EXPECT_TRUE(std::all_of(rest, rest + 2 * 300 * 4, [](uint8_t b) { return b == 0xff; }));
}

void check_combine(Rig& rig, DType type, bool weighted, bool with_shared) {
  for (int64_t t : {1, 5, 40})
    for (int64_t c : {1, 64, 255, 4096}) {
      const int64_t k = 6, experts = 9;
      Array chosen(DType::kI32, {t, k}), shared(type, {t, c}), out(type, {t, c});
      // Repeated ids and dropped ones included.
      chosen.fill([&] { return static_cast<double>(uniform(-1, experts - 1)); });
      std::vector<int32_t> offsets(experts + 1), pair(t * k), row(t * k), position(t * k);
      moe_sort(rig.ctx, chosen.view, 0, experts, offsets.data(), pair.data(), row.data());
      int64_t m = offsets[experts];
      // Rows that no pair was sorted to stay NaN: they must not be read.
      Array y(type, {t * k, c});
      for (int64_t i = 0; i < m * c; ++i) y.set(i, normal());
      shared.fill_normal();
      std::vector<float> weights(t * k);
      for (float& w : weights) w = static_cast<float>(normal());
      std::vector<double> want(t * c, 0.0);
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < c; ++j)
          want[row[i] * c + j] += (weighted ? weights[pair[i]] : 1.0) * y.at(i * c + j);
      if (with_shared)
        for (int64_t i = 0; i < t * c; ++i) want[i] += shared.at(i);
      moe_combine(rig.ctx, y.view, pair.data(), &offsets[experts], k,
                  weighted ? weights.data() : nullptr, with_shared ? shared.view : Tensor(),
                  position.data(), out.view);
      expect_close(out, want, 1e-6, 4, "combine " + std::to_string(t) + "x" + std::to_string(c));
    }
}

TEST_ROWS(Combine, SumsATokensExperts) {
  for (DType type : {DType::kF32, DType::kBF16})
    for (bool weighted : {false, true})
      for (bool with_shared : {false, true}) {
        check_combine(rig, type, weighted, with_shared);
        if (::testing::Test::HasFatalFailure()) return;
      }
}

// Ascending expert id, whatever order the router listed them in: the sums are the same bits.
TEST_ROWS(Combine, DoesNotDependOnTheOrderOfTheChoice) {
  const int64_t t = 4, k = 4, c = 100, experts = 16;
  std::vector<Array> results;
  std::vector<float> expert_rows(t * experts * c);
  for (float& v : expert_rows) v = static_cast<float>(normal());
  for (int turn = 0; turn < 2; ++turn) {
    Array chosen(DType::kI32, {t, k}), out(DType::kF32, {t, c});
    for (int64_t i = 0; i < t; ++i)
      for (int64_t j = 0; j < k; ++j)
        chosen.set(i * k + j, static_cast<double>((i + 5 * (turn ? k - 1 - j : j)) % experts));
    std::vector<int32_t> offsets(experts + 1), pair(t * k), row(t * k), position(t * k);
    moe_sort(rig.ctx, chosen.view, 0, experts, offsets.data(), pair.data(), row.data());
    Array y(DType::kF32, {t * k, c});
    for (int64_t i = 0; i < t * k; ++i) {
      int64_t e = static_cast<int64_t>(chosen.at(pair[i]));
      for (int64_t j = 0; j < c; ++j) y.set(i * c + j, expert_rows[(row[i] * experts + e) * c + j]);
    }
    moe_combine(rig.ctx, y.view, pair.data(), nullptr, k, nullptr, Tensor(), position.data(),
                out.view);
    results.push_back(out);
  }
  EXPECT_TRUE(results[0].same_bits(results[1]));
}

}  // namespace
}  // namespace hadal::test
