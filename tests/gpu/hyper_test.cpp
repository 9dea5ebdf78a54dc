// mHC against double precision: three sizes of the projection, numbers of tokens around the tile,
// odd widths, padded strides.
#include "gpu/hyper_case.h"

namespace hadal {
namespace {

using namespace reference;

// Logits are dot products of up to a thousand fp32 numbers, so their error grows with their size.
double tolerance(const Case& c) {
  return 1e-5 * std::max(1.0, c.fn_scale * std::sqrt(static_cast<double>(c.streams * c.columns)));
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (int64_t rows : {1, 3, 4, 17, 33})
    out.push_back({DType::kF32, rows, 4, 96, 1 / std::sqrt(384.0)});
#ifdef __SANITIZE_THREAD__
  return {out[2], {DType::kBF16, 6, 3, 65, 0.1}};
#endif
  out.push_back({DType::kBF16, 65, 4, 64, 1 / std::sqrt(256.0)});
  out.push_back({DType::kBF16, 1, 4, 7168, 1 / std::sqrt(28672.0)});
  out.push_back({DType::kBF16, 0, 4, 64, 1});
  out.push_back({DType::kBF16, 5, 4, 257, 1e-4});
  out.push_back({DType::kBF16, 5, 4, 257, 1});
  out.push_back({DType::kF32, 6, 3, 65, 0.1});
  out.push_back({DType::kF32, 2, 8, 31, 0.1});
  out.push_back({DType::kBF16, 2, 1, 40, 0.1});
  return out;
}

TEST(Hyper, PreMatchesDouble) {
  for (const Case& c : cases()) {
    Arena arena;
    Hyper h = make(arena, c);
    Maps want = pre(h);
    for (auto m : machines()) {
      h.post = arena.poison(DType::kF32, {c.rows, c.streams}, 1);
      h.comb = arena.poison(DType::kF32, {c.rows, c.streams, c.streams}, 1);
      target::hyper_pre(on(m), h.x, h.w, h.p, h.y, h.post, h.comb);
      EXPECT_LE(map_error(h, want), tolerance(c)) << name(c) << " " << describe(m);
      double size = 300.0 * static_cast<double>(c.rows);
      expect_close(h.y, want.y, rounding(c.type), tolerance(c) * size, name(c) + " " + describe(m));
      EXPECT_TRUE(arena.padding_untouched());
    }
  }
}

TEST(Hyper, CombIsDoublyStochastic) {
  for (auto m : machines()) {
    Arena arena;
    Hyper h = make(arena, {DType::kF32, 9, 4, 64, 1 / 16.0});
    target::hyper_pre(on(m), h.x, h.w, h.p, h.y, h.post, h.comb);
    for (int64_t t = 0; t < 9; ++t)
      for (int64_t n = 0; n < 4; ++n) {
        double row = 0, column = 0;
        for (int64_t k = 0; k < 4; ++k) {
          row += get(h.comb, t, n, k);
          column += get(h.comb, t, k, n);
        }
        EXPECT_NEAR(row, 1, 1e-3);
        EXPECT_NEAR(column, 1, 1e-5);
      }
  }
}

TEST(Hyper, PostMatchesDouble) {
  for (const Case& c : cases()) {
    for (auto m : machines()) {
      Arena arena;
      Hyper h = make(arena, c);
      h.post = arena.normal(DType::kF32, {c.rows, c.streams});
      h.comb = arena.normal(DType::kF32, {c.rows, c.streams, c.streams});
      Doubles want;
      Arena::each(h.x, [&](int64_t t, int64_t k, int64_t i) {
        double sum = get(h.post, t, k) * get(h.a, t, i);
        for (int64_t j = 0; j < c.streams; ++j) sum += get(h.comb, t, j, k) * get(h.x, t, j, i);
        want.push_back(sum);
      });
      target::hyper_post(on(m), h.a, h.post, h.comb, h.x);
      double size = 300.0 * static_cast<double>(c.rows);
      expect_close(h.x, want, rounding(c.type), 2e-6 * size, name(c) + " " + describe(m));
      EXPECT_TRUE(arena.padding_untouched());
    }
  }
}

TEST(Hyper, FusedFormHasTheBitsOfItsParts) {
  for (const Case& c : cases()) {
    for (auto m : machines()) {
      Arena arena;
      Hyper h = make(arena, c);
      h.post = arena.normal(DType::kF32, {c.rows, c.streams});
      h.comb = arena.normal(DType::kF32, {c.rows, c.streams, c.streams});
      Hyper f = h;
      f.x = arena.copy(h.x), f.post = arena.copy(h.post), f.comb = arena.copy(h.comb);
      f.y = arena.copy(h.y);
      target::hyper_post(on(m), h.a, h.post, h.comb, h.x);
      target::hyper_pre(on(m), h.x, h.w, h.p, h.y, h.post, h.comb);
      target::hyper_post_pre(on(m), f.a, f.x, f.w, f.p, f.y, f.post, f.comb);
      expect_same(f.x, h.x, "streams");
      expect_same(f.y, h.y, "y");
      expect_same(f.post, h.post, "post");
      expect_same(f.comb, h.comb, "comb");
    }
  }
}

TEST(Hyper, HeadMatchesDouble) {
  for (const Case& c : cases()) {
    for (auto m : machines()) {
      Arena arena;
      Hyper h = make(arena, c, true);
      target::hyper_head(on(m), h.x, h.w, h.p, h.y);
      double size = 300.0 * static_cast<double>(c.rows);
      expect_close(h.y, pre(h, true).y, rounding(c.type), tolerance(c) * size, name(c));
      EXPECT_TRUE(arena.padding_untouched());
    }
  }
}

// Neither the order of threads, nor the grid, nor the other tokens change a bit.
TEST(Hyper, ResultsDependOnTheTokenAlone) {
  Arena arena;
  Hyper h = make(arena, {DType::kBF16, 17, 4, 96, 0.05});
  for (int warp : {32, 64}) {
    Machine in_order{warp, 0}, shuffled{warp, 5, 2};
    target::hyper_pre(on(in_order), h.x, h.w, h.p, h.y, h.post, h.comb);
    Hyper other = h;
    other.y = arena.poison(DType::kBF16, {17, 96});
    other.comb = arena.poison(DType::kF32, {17, 4, 4});
    target::hyper_pre(on(shuffled), h.x, h.w, h.p, other.y, h.post, other.comb);
    expect_same(other.y, h.y, "shuffled");
    expect_same(other.comb, h.comb, "shuffled");
    Tensor x = h.x.slice(0, 6, 7), y = other.y.slice(0, 6, 7), comb = other.comb.slice(0, 6, 7);
    target::hyper_pre(on(in_order), x, h.w, h.p, y, h.post.slice(0, 6, 7), comb);
    expect_same(y, h.y.slice(0, 6, 7), "alone");
    expect_same(comb, h.comb.slice(0, 6, 7), "alone");
  }
}

}  // namespace
}  // namespace hadal
