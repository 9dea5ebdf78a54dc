// The sampler against a naive double implementation (full sorts, one filter after the other),
// against exact distributions by chi-square, and at the edges of every parameter.
#include "engine/sampler.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

namespace hadal {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

SamplingParams greedy() {
  SamplingParams p;
  p.temperature = 0;
  return p;
}

int32_t draw_one(const SamplingParams& p, const std::vector<float>& logits) {
  Sampler s(p, static_cast<int64_t>(logits.size()), {});
  auto token = s.sample(logits);
  EXPECT_TRUE(token.ok());
  return token.ok() ? token.value().id : -1;
}

// The distribution that the header promises: [V] probabilities, computed in the slowest way.
std::vector<double> expected_distribution(const SamplingParams& p, const std::vector<float>& logits,
                                          const std::vector<int32_t>& prompt,
                                          const std::vector<int32_t>& generated) {
  size_t n = logits.size();
  std::vector<double> x(logits.begin(), logits.end());
  for (size_t id = 0; id < n; ++id) {
    auto in = [&](const std::vector<int32_t>& v) {
      return std::count(v.begin(), v.end(), static_cast<int32_t>(id));
    };
    if (in(prompt) + in(generated) > 0)
      x[id] = x[id] > 0 ? x[id] / p.repetition_penalty : x[id] * p.repetition_penalty;
    auto times = static_cast<double>(in(generated));
    x[id] = x[id] - p.frequency_penalty * times - p.presence_penalty * (times > 0 ? 1 : 0);
  }
  std::vector<size_t> rank(n);
  std::iota(rank.begin(), rank.end(), 0);
  std::stable_sort(rank.begin(), rank.end(), [&](size_t a, size_t b) { return x[a] > x[b]; });
  std::vector<double> q(n, 0.0);
  if (p.temperature == 0) {
    q[rank[0]] = 1;
    return q;
  }
  for (size_t i = 0; i < n; ++i) q[i] = std::exp((x[i] - x[rank[0]]) / p.temperature);
  auto normalise = [&] {
    double sum = std::accumulate(q.begin(), q.end(), 0.0);
    for (double& v : q) v /= sum;
  };
  normalise();
  double best = q[rank[0]];
  for (double& v : q)
    if (v / best < p.min_p) v = 0;
  if (p.top_k > 0)
    for (size_t r = p.top_k; r < n; ++r) q[rank[r]] = 0;
  normalise();
  double before = q[rank[0]];
  for (size_t r = 1; r < n; ++r) {
    double mass = q[rank[r]];
    if (p.top_p < 1 && before >= p.top_p) q[rank[r]] = 0;
    before += mass;
  }
  normalise();
  return q;
}

TEST(Uniform, FillsTheUnitIntervalEvenly) {
  // 64 bins, 64,000 values: along the index of one seed, and along the seeds of one index. The
  // 0.9999 quantile of chi-square with 63 degrees of freedom is 113.6.
  auto chi_square = [](auto value) {
    std::vector<double> bins(64, 0.0);
    for (uint64_t i = 0; i < 64000; ++i) {
      double u = value(i);
      EXPECT_GE(u, 0.0);
      EXPECT_LT(u, 1.0);
      bins[static_cast<size_t>(u * 64)] += 1;
    }
    double sum = 0;
    for (double b : bins) sum += (b - 1000) * (b - 1000) / 1000;
    return sum;
  };
  for (uint64_t seed : {0ull, 1ull, 42ull, ~0ull})
    EXPECT_LT(chi_square([&](uint64_t i) { return uniform(seed, i); }), 113.6) << seed;
  for (uint64_t index : {0ull, 1ull, 1000ull})
    EXPECT_LT(chi_square([&](uint64_t i) { return uniform(i, index); }), 113.6) << index;
  // Neighbouring seeds are independent: the difference modulo 1 is uniform too.
  EXPECT_LT(chi_square([&](uint64_t i) {
              double d = uniform(7, i) - uniform(8, i);
              return d < 0 ? d + 1 : d;
            }),
            113.6);
}

TEST(Sampler, FrequenciesFollowTheExactDistribution) {
  std::vector<float> logits = {0.1f, 2.0f, -1.0f, 1.5f, 1.5f, 0.0f, -3.0f, 0.7f, 1.0f, -0.2f};
  struct Case {
    float temperature, top_p, min_p;
    int top_k;
  };
  for (Case c : {Case{1, 1, 0, 0}, Case{0.6f, 1, 0, 0}, Case{2, 1, 0, 0}, Case{1, 0.8f, 0, 0},
                 Case{1, 1, 0, 4}, Case{1, 1, 0.2f, 0}, Case{1.3f, 0.7f, 0.05f, 6}}) {
    SamplingParams p;
    p.temperature = c.temperature;
    p.top_p = c.top_p;
    p.min_p = c.min_p;
    p.top_k = c.top_k;
    p.seed = 20;
    auto exact = expected_distribution(p, logits, {}, {});
    constexpr int kDraws = 40000;
    std::vector<double> seen(logits.size(), 0.0);
    Sampler s(p, static_cast<int64_t>(logits.size()), {});
    for (int i = 0; i < kDraws; ++i) seen[s.sample(logits).value().id] += 1;
    double chi_square = 0;
    for (size_t id = 0; id < logits.size(); ++id) {
      if (exact[id] == 0) {
        EXPECT_EQ(seen[id], 0) << "a filtered token was drawn";
        continue;
      }
      double want = exact[id] * kDraws;
      chi_square += (seen[id] - want) * (seen[id] - want) / want;
    }
    EXPECT_LT(chi_square, 33.7);  // the 0.9999 quantile with 9 degrees of freedom
  }
}

RC_GTEST_PROP(Sampler, EveryDrawIsTheOneOfTheNaiveImplementation, ()) {
  std::mt19937_64 rng(*rc::gen::arbitrary<uint64_t>());
  auto real = [&](double lo, double hi) { return std::uniform_real_distribution(lo, hi)(rng); };
  auto whole = [&](int lo, int hi) { return std::uniform_int_distribution(lo, hi)(rng); };
  int n = whole(1, 5) == 1 ? whole(300, 3000) : whole(1, 40);
  std::vector<float> logits(n);
  bool ties = whole(0, 1) == 1;
  for (float& v : logits) v = static_cast<float>(ties ? whole(-3, 3) : real(-6, 6));
  SamplingParams p;
  auto sometimes = [&](auto value, auto otherwise) { return whole(0, 1) ? value : otherwise; };
  p.temperature = sometimes(static_cast<float>(real(0.05, 4)), 1.0f);
  p.top_k = sometimes(whole(1, n + 2), 0);
  p.top_p = sometimes(static_cast<float>(real(0, 1)), 1.0f);
  p.min_p = sometimes(static_cast<float>(real(0, 0.5)), 0.0f);
  p.presence_penalty = sometimes(static_cast<float>(real(-2, 2)), 0.0f);
  p.frequency_penalty = sometimes(static_cast<float>(real(-2, 2)), 0.0f);
  p.repetition_penalty = sometimes(static_cast<float>(real(0.5, 2)), 1.0f);
  p.seed = rng();
  std::vector<int32_t> prompt(whole(0, 5)), generated;
  for (int32_t& id : prompt) id = whole(0, n - 1);
  Sampler s(p, n, prompt);
  for (uint64_t i = 0; i < 8; ++i) {
    auto q = expected_distribution(p, logits, prompt, generated);
    int32_t id = s.sample(logits).value().id;
    RC_ASSERT(q[id] > 0);
    // The interval of `id` in the cumulated distribution holds the uniform number of this index.
    double below = std::accumulate(q.begin(), q.begin() + id, 0.0), u = uniform(p.seed, i);
    RC_ASSERT(below <= u + 1e-12);
    RC_ASSERT(u <= below + q[id] + 1e-12);
    generated.push_back(id);
  }
}

TEST(Sampler, TemperatureZeroIsArgmaxAndTheLowestIdWinsTies) {
  EXPECT_EQ(draw_one(greedy(), {1, 3, 2}), 1);
  EXPECT_EQ(draw_one(greedy(), {1, 3, 3, 3}), 1);
  EXPECT_EQ(draw_one(greedy(), {-5, -5, -5}), 0);
  SamplingParams p = greedy();  // filters cannot take the best token away
  p.top_p = 0;
  p.min_p = 1;
  p.top_k = 1;
  EXPECT_EQ(draw_one(p, {1, 3, 3}), 1);
}

TEST(Sampler, TopKOneAndTopPZeroAreArgmaxAtAnyTemperature) {
  std::vector<float> logits = {0.5f, 1.0f, 1.0f, 0.9f};
  for (uint64_t seed = 0; seed < 200; ++seed) {
    for (float temperature : {0.3f, 1.0f, 1e6f, kInf}) {
      SamplingParams p;
      p.seed = seed;
      p.temperature = temperature;
      p.top_k = 1;
      EXPECT_EQ(draw_one(p, logits), 1);
      p.top_k = 0;
      p.top_p = 0;
      EXPECT_EQ(draw_one(p, logits), 1);
    }
  }
}

TEST(Sampler, MinPOneKeepsTheTiesOfTheBest) {
  std::set<int32_t> seen;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SamplingParams p;
    p.min_p = 1;
    p.seed = seed;
    seen.insert(draw_one(p, {0.5f, 1.0f, 0.99f, 1.0f}));
  }
  EXPECT_EQ(seen, (std::set<int32_t>{1, 3}));
}

TEST(Sampler, HugeTemperatureIsUniformAndTinyIsArgmax) {
  std::vector<float> logits = {-3e38f, 3e38f, 0, 12};
  for (float temperature : {1e-45f, 1e-30f, 1e-3f}) {
    SamplingParams p;
    p.temperature = temperature;
    EXPECT_EQ(draw_one(p, logits), 1) << temperature;
  }
  // At infinity every token has the same weight, however far apart the logits are; at 1e6 ordinary
  // logits do. 3 degrees of freedom: the 0.9999 quantile of chi-square is 21.1.
  for (auto [temperature, row] : {std::pair{kInf, logits}, {1e6f, {-9, 9, 0, 12}}}) {
    SamplingParams p;
    p.temperature = temperature;
    Sampler s(p, 4, {});
    std::vector<double> seen(4, 0.0);
    for (int i = 0; i < 8000; ++i) seen[s.sample(row).value().id] += 1;
    double chi_square = 0;
    for (double v : seen) chi_square += (v - 2000) * (v - 2000) / 2000;
    EXPECT_LT(chi_square, 21.1) << temperature;
  }
}

TEST(Sampler, SameSeedSameTokensAndTokenIDependsOnItsIndexAlone) {
  std::vector<float> flat(1000, 0.0f), other(1000, 0.0f);
  other[17] = 50;
  SamplingParams p;
  p.seed = 5;
  Sampler a(p, 1000, {}), b(p, 1000, {});
  std::vector<int32_t> first, second;
  for (int i = 0; i < 20; ++i) first.push_back(a.sample(flat).value().id);
  // Other logits in between change their own token only.
  for (int i = 0; i < 20; ++i) second.push_back(b.sample(i == 7 ? other : flat).value().id);
  EXPECT_EQ(second[7], 17);
  second[7] = first[7];
  EXPECT_EQ(first, second);
  p.seed = 6;
  Sampler c(p, 1000, {});
  second.clear();
  for (int i = 0; i < 20; ++i) second.push_back(c.sample(flat).value().id);
  EXPECT_NE(first, second);
}

TEST(Sampler, LogprobsAreOfTheUnmodifiedDistribution) {
  // log-softmax of (ln 1, ln 2, ln 5) = ln(1/8), ln(2/8), ln(5/8), whatever the filters do.
  std::vector<float> logits = {0, std::log(2.0f), std::log(5.0f)};
  SamplingParams p = greedy();
  p.logprobs = 2;
  p.presence_penalty = 9;
  Sampler s(p, 3, {});
  auto first = s.sample(logits).value(), second = s.sample(logits).value();
  EXPECT_EQ(first.id, 2);
  EXPECT_NEAR(first.logprob, std::log(5.0 / 8), 1e-6);
  EXPECT_EQ(second.id, 1);  // the penalty moved the choice, not the logprobs
  EXPECT_NEAR(second.logprob, std::log(2.0 / 8), 1e-6);
  ASSERT_EQ(second.top.size(), 2u);
  EXPECT_EQ(second.top[0].id, 2);
  EXPECT_NEAR(second.top[0].logprob, std::log(5.0 / 8), 1e-6);
  EXPECT_EQ(second.top[1].id, 1);
  EXPECT_NEAR(second.top[1].logprob, std::log(2.0 / 8), 1e-6);
}

TEST(Sampler, LogprobsOfFarApartAndEqualLogits) {
  SamplingParams p = greedy();
  p.logprobs = 3;
  Sampler far(p, 3, {});
  auto token = far.sample(std::vector<float>{3e38f, -3e38f, 0}).value();
  EXPECT_EQ(token.logprob, 0.0f);
  EXPECT_EQ(token.top[1].id, 2);
  EXPECT_EQ(token.top[1].logprob, -3e38f);
  Sampler equal(p, 4, {});
  token = equal.sample(std::vector<float>(4, -7.0f)).value();
  ASSERT_EQ(token.top.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(token.top[i].id, i);
    EXPECT_NEAR(token.top[i].logprob, std::log(0.25), 1e-6);
  }
  p.logprobs = 0;
  Sampler chosen_only(p, 4, {});
  token = chosen_only.sample(std::vector<float>(4, 1.0f)).value();
  EXPECT_TRUE(token.top.empty());
  EXPECT_NEAR(token.logprob, std::log(0.25), 1e-6);
}

TEST(Sampler, NonFiniteLogitIsAnErrorThatNamesTheToken) {
  for (float bad : {kInf, -kInf, std::nanf("")}) {
    Sampler s(greedy(), 3, {});
    auto token = s.sample(std::vector<float>{0, 1, bad});
    ASSERT_FALSE(token.ok());
    EXPECT_NE(token.error().message.find("token id 2"), std::string::npos) << token.error().message;
  }
}

TEST(CheckSampling, NamesTheFieldAndWhatIsAllowed) {
  auto message = [](auto change) {
    SamplingParams p;
    change(p);
    auto status = check_sampling(p, 100);
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_EQ(message([](auto&) {}), "");
  EXPECT_EQ(message([](auto& p) { p.temperature = kInf; }), "");
  EXPECT_EQ(message([](auto& p) { p.top_p = 0; }), "");
  EXPECT_EQ(message([](auto& p) { p.logprobs = 100; }), "");
  EXPECT_EQ(message([](auto& p) { p.temperature = -1; }),
            "temperature is -1: it must be 0 or more");
  EXPECT_EQ(message([](auto& p) { p.temperature = NAN; }).substr(0, 15), "temperature is ");
  EXPECT_EQ(message([](auto& p) { p.top_k = -1; }),
            "top_k is -1: it must be 0 (all tokens) or more");
  EXPECT_EQ(message([](auto& p) { p.top_p = 1.5f; }), "top_p is 1.5: it must be between 0 and 1");
  EXPECT_EQ(message([](auto& p) { p.min_p = -1; }), "min_p is -1: it must be between 0 and 1");
  EXPECT_EQ(message([](auto& p) { p.repetition_penalty = 0; }),
            "repetition_penalty is 0: it must be above 0 and finite (1 = none)");
  EXPECT_EQ(message([](auto& p) { p.presence_penalty = kInf; }),
            "presence_penalty is inf: it must be a finite number");
  EXPECT_EQ(message([](auto& p) { p.frequency_penalty = NAN; }),
            "frequency_penalty is nan: it must be a finite number");
  EXPECT_EQ(message([](auto& p) { p.max_tokens = 0; }), "max_tokens is 0: it must be 1 or more");
  EXPECT_EQ(message([](auto& p) { p.logprobs = 101; }),
            "logprobs is 101: it must be between 0 and 100, the size of the vocabulary");
}

TEST(Sampler, BiasChangesTheChoiceAndNotTheScores) {
  std::vector<float> logits = {1, 3, 2, 0};
  SamplingParams p = greedy();
  p.logprobs = 1;
  Sampler s(p, 4, {});
  EXPECT_EQ(s.sample(logits, std::vector<TokenBias>{{0, 2.5f}}).value().id, 0);
  EXPECT_EQ(s.sample(logits, std::vector<TokenBias>{{1, -kInf}}).value().id, 2);
  EXPECT_EQ(s.sample(logits, std::vector<TokenBias>{{1, -kInf}, {2, -5}}).value().id, 0);
  auto token = s.sample(logits, std::vector<TokenBias>{{3, 100}}).value();
  EXPECT_EQ(token.id, 3);
  double sum = std::exp(1.0) + std::exp(3.0) + std::exp(2.0) + std::exp(0.0);
  EXPECT_NEAR(token.logprob, 0 - std::log(sum), 1e-6);
  EXPECT_EQ(token.top.at(0).id, 1);
  // A forbidden token never comes, at any temperature.
  p.temperature = 1e6f;
  Sampler hot(p, 4, {});
  for (int i = 0; i < 200; ++i)
    EXPECT_NE(hot.sample(logits, std::vector<TokenBias>{{1, -kInf}}).value().id, 1);
}

}  // namespace
}  // namespace hadal
