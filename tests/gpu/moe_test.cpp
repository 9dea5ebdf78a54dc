// Router, sort, gated activation and combine against double precision. Chosen experts
// must be those of fp64 wherever the gap exceeds 1e-6; what is left out must stay untouched.
#include <algorithm>
#include <numeric>

#include "gpu/reference.h"

namespace hadal {
namespace {

using namespace reference;

struct Shape {
  int experts, groups, kept, k;
};

double score(RouterScore kind, double v) {
  return kind == RouterScore::kSigmoid ? 1 / (1 + std::exp(-v))
                                       : std::sqrt(std::log1p(std::exp(v)));
}

// Biased scores, with -inf for the experts of dropped groups. Groups whose order is closer than the
// fp32 can tell set `close`.
Doubles selection(const Doubles& biased, const Shape& s, bool& close) {
  Doubles out = biased, sums(s.groups);
  int size = s.experts / s.groups;
  for (int g = 0; g < s.groups; ++g) {
    Doubles v(biased.begin() + g * size, biased.begin() + (g + 1) * size);
    std::sort(v.rbegin(), v.rend());
    sums[g] = v[0] + (size > 1 ? v[1] : 0);
  }
  Doubles sorted = sums;
  std::sort(sorted.rbegin(), sorted.rend());
  if (s.kept >= s.groups) return out;
  close |= sorted[s.kept - 1] - sorted[s.kept] < 1e-6;
  for (int e = 0; e < s.experts; ++e)
    if (sums[e / size] < sorted[s.kept - 1]) out[e] = -INFINITY;
  return out;
}

void check_route(const Shape& s, DType type, RouterScore kind, double bias_scale, bool normalize) {
  for (auto m : machines()) {
    Arena arena;
    int64_t rows = 7;
    Router r;
    r.score = kind, r.groups = s.groups, r.kept_groups = s.kept, r.k = s.k;
    r.scale = 2.5f, r.normalize = normalize;
    Tensor logits = arena.normal(type, {rows, s.experts}, 9);
    r.bias = arena.normal(DType::kF32, {s.experts}, 0, [&](int64_t) { return bias_scale; });
    set(logits, NAN, 4, s.experts / 2);
    Tensor chosen = arena.poison(DType::kI32, {rows, s.k}, 10);
    Tensor weights = arena.poison(DType::kF32, {rows, s.k}, 10);
    target::route(on(m), logits, nullptr, r, chosen, weights);
    int checked = 0;
    for (int64_t t = 0; t < rows; ++t) {
      if (t == 4) {
        for (int k = 0; k < s.k; ++k) {
          EXPECT_EQ(get(chosen, t, k), -1);
          EXPECT_TRUE(std::isnan(get(weights, t, k)));
        }
        continue;
      }
      Doubles plain, biased;
      for (int e = 0; e < s.experts; ++e) {
        plain.push_back(score(kind, get(logits, t, e)));
        biased.push_back(plain[e] + get(r.bias, e));
      }
      bool close = false;
      biased = selection(biased, s, close);
      std::vector<int> order(s.experts);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int a, int b) { return biased[a] > biased[b]; });
      double sum = 0;
      for (int k = 0; k < s.k; ++k) sum += plain[order[k]];
      for (int k = 0; k < s.k && !close; ++k) {
        double gap = k + 1 < s.experts ? biased[order[k]] - biased[order[k + 1]] : 1;
        if (gap < 1e-6) close = true;
        if (close) break;
        ++checked;
        EXPECT_EQ(get(chosen, t, k), order[k])
            << "row " << t << " choice " << k << " " << describe(m);
        double want = (normalize ? plain[order[k]] / sum : plain[order[k]]) * 2.5;
        EXPECT_NEAR(get(weights, t, k), want, 1e-5 * want);
      }
    }
    EXPECT_GE(checked, 5 * s.k);  // gaps under 1e-6 are rare
    EXPECT_TRUE(arena.padding_untouched());
  }
}

TEST(Route, SigmoidInGroups) {
  check_route({64, 8, 4, 8}, DType::kF32, RouterScore::kSigmoid, 0.1, true);
  check_route({64, 8, 4, 8}, DType::kBF16, RouterScore::kSigmoid, 0.1, true);
  check_route({256, 8, 4, 8}, DType::kF32, RouterScore::kSigmoid, 1, true);
  check_route({384, 1, 1, 8}, DType::kF32, RouterScore::kSigmoid, 0.1, true);
  check_route({896, 1, 1, 16}, DType::kBF16, RouterScore::kSigmoid, 0.1, true);
  // A bias far below zero for all: dropped groups must still lose to kept ones.
  check_route({16, 8, 2, 2}, DType::kF32, RouterScore::kSigmoid, 50, false);
}

TEST(Route, SquareRootOfSoftplus) {
  check_route({96, 1, 1, 6}, DType::kF32, RouterScore::kSqrtSoftplus, 0.3, true);
  check_route({300, 1, 1, 22}, DType::kBF16, RouterScore::kSqrtSoftplus, 0.3, true);
}

TEST(Route, EqualScoresGoToTheLowerIndex) {
  for (auto m : machines()) {
    Arena arena;
    Tensor logits = arena.poison(DType::kF32, {1, 70});
    for (int e = 0; e < 70; ++e) set(logits, e == 66 ? 1 : 0, 0, e);
    Router r;
    r.k = 4;
    Tensor chosen = arena.poison(DType::kI32, {1, 4}), weights = arena.poison(DType::kF32, {1, 4});
    target::route(on(m), logits, nullptr, r, chosen, weights);
    expect_close(chosen, {66, 0, 1, 2}, 0, 0, describe(m));
  }
}

TEST(Route, EqualGroupsGoToTheLowerIndex) {
  for (auto m : machines()) {
    Arena arena;
    Tensor logits = arena.poison(DType::kF32, {1, 32});
    for (int e = 0; e < 32; ++e) set(logits, -1, 0, e);
    Router r;
    r.k = 6, r.groups = 8, r.kept_groups = 2;
    Tensor chosen = arena.poison(DType::kI32, {1, 6}), weights = arena.poison(DType::kF32, {1, 6});
    target::route(on(m), logits, nullptr, r, chosen, weights);
    expect_close(chosen, {0, 1, 2, 3, 4, 5}, 0, 0, describe(m));
    expect_close(weights, Doubles(6, 1.0 / 6), 1e-6, 0, describe(m));
  }
}

TEST(Route, HashLayersChooseByToken) {
  for (auto m : machines()) {
    Arena arena;
    Tensor logits = arena.normal(DType::kF32, {3, 16}), ids = arena.integers(DType::kI32, {3}, 9);
    Router r;
    r.k = 4, r.score = RouterScore::kSqrtSoftplus;
    r.table = arena.integers(DType::kI64, {9, 4}, 16);
    Tensor chosen = arena.poison(DType::kI32, {3, 4}), weights = arena.poison(DType::kF32, {3, 4});
    target::route(on(m), logits, ids.at<int32_t>(), r, chosen, weights);
    for (int64_t t = 0; t < 3; ++t) {
      double sum = 0, v[4];
      for (int k = 0; k < 4; ++k) {
        auto e = static_cast<int64_t>(get(r.table, static_cast<int64_t>(get(ids, t)), k));
        EXPECT_EQ(get(chosen, t, k), e);
        sum += v[k] = score(r.score, get(logits, t, e));
      }
      for (int k = 0; k < 4; ++k) EXPECT_NEAR(get(weights, t, k), v[k] / sum, 1e-6);
    }
    set(r.table, 16, static_cast<int64_t>(get(ids, 1)), 2);
    target::route(on(m), logits, ids.at<int32_t>(), r, chosen, weights);
    EXPECT_EQ(get(chosen, 1, 0), -1);
  }
}

struct Sorted {
  Tensor chosen, offsets, pair, row;
};

Sorted sort(Arena& arena, Machine& m, int64_t rows, int64_t k, int64_t experts) {
  Sorted s;
  s.chosen = arena.integers(DType::kI32, {rows, k}, experts);
  if (rows > 2) set(s.chosen, -1, 1, 0), set(s.chosen, -1, rows - 1, k - 1);
  s.offsets = arena.poison(DType::kI32, {experts + 1});
  s.pair = arena.poison(DType::kI32, {rows * k});
  s.row = arena.poison(DType::kI32, {rows * k});
  target::moe_sort(on(m), s.chosen, 0, experts, s.offsets.at<int32_t>(), s.pair.at<int32_t>(),
                   s.row.at<int32_t>());
  return s;
}

TEST(Moe, SortIsStableAndComplete) {
  for (auto m : machines()) {
    for (auto [rows, k, experts] : {std::tuple{1, 1, 1}, {5, 3, 7}, {90, 4, 5}, {2, 8, 40}}) {
      Arena arena(rows);
      Sorted s = sort(arena, m, rows, k, experts);
      std::vector<std::vector<int>> want(experts);
      for (int p = 0; p < rows * k; ++p)
        if (get(s.chosen, p / k, p % k) >= 0)
          want[static_cast<size_t>(get(s.chosen, p / k, p % k))].push_back(p);
      int at = 0;
      for (int e = 0; e < experts; ++e) {
        EXPECT_EQ(get(s.offsets, e), at);
        for (int p : want[e]) {
          EXPECT_EQ(get(s.pair, at), p);
          EXPECT_EQ(get(s.row, at++), p / k);
        }
      }
      EXPECT_EQ(get(s.offsets, experts), at);
      for (; at < rows * k; ++at) EXPECT_EQ(get(s.pair, at), -1);  // unwritten
    }
  }
}

TEST(Moe, SwigluClampsAndWeighs) {
  for (auto m : machines()) {
    for (DType type : {DType::kF32, DType::kBF16}) {
      for (float limit : {0.0f, 1.5f}) {
        Arena arena;
        Tensor both = arena.normal(type, {6, 90}, 1, [](int64_t i) { return i + 1.0; });
        Tensor gate = both.slice(1, 0, 45), up = both.slice(1, 45, 90);
        Tensor y = arena.poison(type, {6, 45}, 3), weights = arena.normal(DType::kF32, {9});
        Tensor pair = arena.integers(DType::kI32, {6}, 9), used = arena.poison(DType::kI32, {1});
        set(used, 4, 0);
        target::swiglu(on(m), gate, up, limit, weights.at<float>(), pair.at<int32_t>(),
                       used.at<int32_t>(), y);
        double bound = limit > 0 ? limit : INFINITY;
        Doubles want;
        Arena::each(y, [&](int64_t i, int64_t c, int64_t) {
          double g = std::min(get(gate, i, c), bound);
          double u = std::clamp(get(up, i, c), -bound, bound);
          double w = get(weights, static_cast<int64_t>(get(pair, i)));
          want.push_back(i < 4 ? w * g / (1 + std::exp(-g)) * u : NAN);
        });
        expect_close(y, want, rounding(type), 1e-30, describe(m));
        target::swiglu(on(m), gate, up, limit, nullptr, nullptr, nullptr, gate);
        EXPECT_FALSE(std::isnan(get(gate, 5, 44)));
        EXPECT_TRUE(arena.padding_untouched());
      }
    }
  }
}

TEST(Moe, CombineAddsAllExpertsOfAToken) {
  for (auto m : machines()) {
    for (DType type : {DType::kF32, DType::kBF16}) {
      for (bool shared : {false, true}) {
        Arena arena;
        int64_t rows = 6, k = 5, columns = 70;
        Sorted s = sort(arena, m, rows, k, 9);
        Tensor y = arena.normal(type, {rows * k, columns}, 2);
        for (int64_t c = 0; c < columns; ++c)  // two pairs are left out: these rows are not read
          set(y, NAN, rows * k - 1, c), set(y, NAN, rows * k - 2, c);
        Tensor weights = arena.normal(DType::kF32, {rows, k});
        Tensor add = shared ? arena.normal(type, {rows, columns}, 1) : Tensor();
        Tensor position = arena.poison(DType::kI32, {rows * k});
        Tensor out = arena.poison(type, {rows, columns}, 3);
        Doubles want(rows * columns, 0.0);
        for (int64_t i = 0; i < static_cast<int64_t>(get(s.offsets, 9)); ++i) {
          auto p = static_cast<int64_t>(get(s.pair, i)), t = p / k;
          for (int64_t c = 0; c < columns; ++c)
            want[t * columns + c] += get(weights, t, p % k) * get(y, i, c);
        }
        for (int64_t n = 0; shared && n < rows * columns; ++n)
          want[n] += get(add, n / columns, n % columns);
        target::moe_combine(on(m), y, s.pair.at<int32_t>(), s.offsets.at<int32_t>(9), k,
                            weights.at<float>(), add, position.at<int32_t>(), out);
        expect_close(out, want, rounding(type), 2e-6, describe(m));
        EXPECT_TRUE(arena.padding_untouched());
      }
    }
  }
}

}  // namespace
}  // namespace hadal
