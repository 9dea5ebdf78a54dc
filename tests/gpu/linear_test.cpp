// Matrix products against double-precision sums over weight_value(), the definition of
// every format: sizes that are no multiples of any tile, strided rows, slices that start inside a
// scale block, experts without rows.
#include "gpu/linear_cases.h"

namespace hadal {
namespace {

using namespace reference;

#ifdef __SANITIZE_THREAD__  // the barriers are the same for all formats
const Format kFormats[] = {{DType::kBF16, DType::kBF16, DType::kF32},
                           {DType::kF8E4M3, DType::kI8, DType::kF8E8M0}};
#else
const Format kFormats[] = {
    {DType::kF32, DType::kF32, DType::kF32},          {DType::kBF16, DType::kBF16, DType::kF32},
    {DType::kBF16, DType::kF16, DType::kF32},         {DType::kF32, DType::kF8E4M3, DType::kF8E8M0},
    {DType::kBF16, DType::kI8, DType::kF8E8M0},       {DType::kF8E4M3, DType::kF8E4M3, DType::kF32},
    {DType::kF8E4M3, DType::kF8E4M3, DType::kF8E8M0}, {DType::kF8E4M3, DType::kI8, DType::kF8E8M0},
    {DType::kF8E4M3, DType::kBF16, DType::kF32}};
#endif

TEST(Linear, MatchesDouble) {
  for (const Format& f : kFormats) {
    for (auto [m, n, k] : {std::tuple{1, 70, 160}, {33, 131, 288}, {5, 3, 32}, {2, 9, 7168}}) {
      if (m == 33 && f.w == DType::kF16) continue;
      for (DType out : {DType::kF32, DType::kBF16}) {
        Arena arena;
        Activation x = random_activation(arena, f.x, m, k, Rows::kOdd);
        Weight w = random_weight(arena, f.w, n, k, f.scale, 77, Rows::kOdd);
        std::vector<Dot> want(m * n);
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j)
            for (int64_t c = 0; c < k; ++c)
              want[i * n + j].add(value(x, i, c), weight_value(on_host(w), j, c));
        for (auto machine : machines()) {
          Tensor y = arena.poison(out, {m, n}, 3);
          target::linear(on(machine), x, w, y);
          expect_dots(y, want, name(f) + " " + describe(machine));
        }
        EXPECT_TRUE(arena.padding_untouched());
      }
    }
  }
}

// Widths that no block divides: the last block of K is short.
TEST(Linear, OddWidths) {
  for (const Format& f : kFormats) {
    if (f.w == DType::kI8) continue;
    for (auto machine : machines()) {
      Arena arena;
      Activation x = random_activation(arena, f.x, 3, 147, Rows::kOdd);
      Weight w = random_weight(arena, f.w, 9, 147, f.scale, 0, Rows::kOdd);
      Tensor y = arena.poison(DType::kF32, {3, 9});
      std::vector<Dot> want(27);
      for (int64_t i = 0; i < 27; ++i)
        for (int64_t c = 0; c < 147; ++c)
          want[i].add(value(x, i / 9, c), weight_value(on_host(w), i % 9, c));
      target::linear(on(machine), x, w, y);
      expect_dots(y, want, name(f) + " " + describe(machine));
    }
  }
}

TEST(Linear, ARowDependsOnItselfAlone) {
  Arena arena;
  Activation x = random_activation(arena, DType::kF8E4M3, 40, 288, Rows::kOdd);
  Weight w = random_weight(arena, DType::kF8E4M3, 30, 288, DType::kF32, 0, Rows::kOdd);
  Tensor y = arena.poison(DType::kF32, {40, 30}), one = arena.poison(DType::kF32, {1, 30});
  Machine in_order{32, 0}, shuffled{64, 3, 1};
  target::linear(on(in_order), x, w, y);
  target::linear(on(shuffled), {x.data.slice(0, 37, 38), x.scale.slice(0, 37, 38)}, w, one);
  expect_same(one, y.slice(0, 37, 38), "alone, on another warp width");
}

TEST(Linear, ExpertsTakeTheirRows) {
  int64_t experts = 5, n = 67, k = 96;
  for (const Format& f : kFormats) {
    for (auto machine : machines()) {
      for (bool gathered : {false, true}) {
        Arena arena;
        Activation x = random_activation(arena, f.x, 50, k, Rows::kOdd);
        // Experts of FP8 are whole scale blocks apart in released files; here they need not be.
        auto w =
            cut(random_weight(arena, f.w, experts * n, k, f.scale, 0, Rows::kOdd), experts, n, n);
        Tensor offsets = arena.poison(DType::kI32, {experts + 1});
        Tensor rows = arena.integers(DType::kI32, {45}, 50);
        int ends[] = {0, 3, 3, 40, 41, 45};  // one expert without rows, one with more than a tile
        for (int e = 0; e <= 5; ++e) set(offsets, ends[e], e);
        Tensor y = arena.poison(DType::kBF16, {48, n}, 1);
        std::vector<Dot> want(48 * n, Dot{0, -1});  // rows beyond the last expert stay unwritten
        for (int64_t e = 0; e < experts; ++e)
          for (int64_t i = ends[e]; i < ends[e + 1]; ++i)
            for (int64_t j = 0; j < n; ++j) {
              Dot d;
              int64_t from = gathered ? static_cast<int64_t>(get(rows, i)) : i;
              for (int64_t c = 0; c < k; ++c)
                d.add(value(x, from, c), weight_value(on_host(w[e]), j, c));
              want[i * n + j] = d;
            }
        target::grouped_linear(on(machine), x, gathered ? rows.at<int32_t>() : nullptr,
                               offsets.at<int32_t>(), w, y);
        expect_dots(y, want, name(f) + " " + describe(machine));
        EXPECT_TRUE(arena.padding_untouched());
      }
    }
  }
}

TEST(Linear, HeadsAndTheirTranspose) {
  int64_t groups = 3, n = 40, k = 70, m = 34;
  for (DType type : {DType::kF32, DType::kBF16, DType::kF8E4M3}) {
    DType active = type == DType::kF32 ? DType::kF32 : DType::kBF16;
    for (auto machine : machines()) {
      Arena arena;
      // Two kinds of rows per head, as in kv_b_proj: the second kind is used.
      Weight whole = random_weight(arena, type, groups * (n + 24), k, DType::kF32, 0, Rows::kOdd);
      std::vector<Weight> w;
      for (int64_t g = 0; g < groups; ++g)
        w.push_back(whole.rows(g * (n + 24) + 24, (g + 1) * (n + 24)));
      Tensor x = arena.normal(active, {m, groups, k}, 2),
             y = arena.poison(active, {m, groups, n}, 1);
      std::vector<Dot> want;
      Arena::each(y, [&](int64_t i, int64_t g, int64_t j) {
        Dot d;
        for (int64_t c = 0; c < k; ++c) d.add(get(x, i, g, c), weight_value(on_host(w[g]), j, c));
        want.push_back(d);
      });
      target::batched_linear(on(machine), x, w, y);
      expect_dots(y, want, "plain, " + describe(machine));

      Tensor xt = arena.normal(active, {m, groups, n}, 2),
             yt = arena.poison(active, {m, groups, k});
      want.clear();
      Arena::each(yt, [&](int64_t i, int64_t g, int64_t j) {
        Dot d;
        for (int64_t c = 0; c < n; ++c) d.add(get(xt, i, g, c), weight_value(on_host(w[g]), c, j));
        want.push_back(d);
      });
      target::batched_linear_transposed(on(machine), xt, w, yt);
      expect_dots(yt, want, "transposed, " + describe(machine));
      EXPECT_TRUE(arena.padding_untouched());
    }
  }
}

}  // namespace
}  // namespace hadal
