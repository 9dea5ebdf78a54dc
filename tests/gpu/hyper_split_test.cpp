// mHC with the columns of a token spread over blocks, against double precision: three sizes of the
// projection, numbers of tokens around the tile, odd widths, widths of several pieces, rows that
// can and cannot be read in vectors, a workspace full of NaN. And what a token may not depend on.
#include "gpu/hyper_case.h"

namespace hadal {
namespace {

using namespace reference;

double tolerance(const Case& c) {
  return 1e-5 * std::max(1.0, c.fn_scale * std::sqrt(static_cast<double>(c.streams * c.columns)));
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (int64_t rows : {1, 3, 8, 17, 33})
    out.push_back({DType::kF32, rows, 4, 96, 1 / std::sqrt(384.0)});
#ifdef __SANITIZE_THREAD__
  return {out[2], {DType::kBF16, 6, 3, 65, 0.1}};
#endif
  out.push_back({DType::kBF16, 65, 4, 64, 1 / std::sqrt(256.0)});
  out.push_back({DType::kBF16, 1, 4, 7168, 1 / std::sqrt(28672.0)});
  out.push_back({DType::kBF16, 2, 4, 4096, 1 / std::sqrt(16384.0)});
  out.push_back({DType::kF32, 1, 2, 8204, 1 / std::sqrt(16408.0)});  // slices of more than 64
  out.push_back({DType::kBF16, 0, 4, 64, 1});
  out.push_back({DType::kBF16, 5, 4, 257, 1e-4});
  out.push_back({DType::kBF16, 5, 4, 257, 1});
  out.push_back({DType::kF32, 6, 3, 65, 0.1});
  out.push_back({DType::kF32, 2, 8, 31, 0.1});
  out.push_back({DType::kF32, 2, 8, 72, 0.1});
  out.push_back({DType::kBF16, 2, 1, 40, 0.1});
  return out;
}

// The same numbers in rows of whole vectors.
Hyper whole_rows(Arena& arena, const Hyper& h) {
  Hyper out = h;
  int64_t rows = h.x.shape[0], r = h.x.shape[1], c = h.x.shape[2];
  out.x = arena.poison(h.x.dtype, {rows, r, c}, 8);
  Arena::each(h.x,
              [&](int64_t i, int64_t j, int64_t k) { set(out.x, get(h.x, i, j, k), i, j, k); });
  out.y = arena.poison(h.x.dtype, {rows, c}, 8);
  return out;
}

// Columns that are too few or too odd for vectors take the other path either way.
void check_pre(const Case& c, bool whole, Machine m) {
  Arena arena;
  Hyper h = make(arena, c);
  if (whole) h = whole_rows(arena, h);
  Maps want = pre(h);
  h.post = arena.poison(DType::kF32, {c.rows, c.streams}, 1);
  h.comb = arena.poison(DType::kF32, {c.rows, c.streams, c.streams}, 1);
  Workspace w(target::hyper_split_workspace(c.rows, h.w.fn.shape[0]));
  target::hyper_pre_split(on(m), h.x, h.w, h.p, h.y, h.post, h.comb, w.tensor);
  EXPECT_LE(map_error(h, want), tolerance(c)) << name(c) << " " << describe(m);
  double size = 300.0 * static_cast<double>(c.rows);
  expect_close(h.y, want.y, rounding(c.type), tolerance(c) * size, name(c) + " " + describe(m));
  EXPECT_TRUE(arena.padding_untouched() && w.end_untouched());
}

TEST(HyperSplit, PreMatchesDouble) {
  for (const Case& c : cases())
    for (auto m : machines())
      for (bool whole : {false, true}) check_pre(c, whole, m);
}

TEST(HyperSplit, CombIsDoublyStochastic) {
  for (auto m : machines()) {
    Arena arena;
    Hyper h = make(arena, {DType::kF32, 9, 4, 64, 1 / 16.0});
    Workspace w(target::hyper_split_workspace(9, 24));
    target::hyper_pre_split(on(m), h.x, h.w, h.p, h.y, h.post, h.comb, w.tensor);
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

// The streams after a post, then the same call without one: that is hyper_post alone, and the maps
// and y of the fused call must be those of its own streams.
TEST(HyperSplit, FusedFormHasTheBitsOfItsParts) {
  for (const Case& c : cases()) {
    for (auto m : machines()) {
      Arena arena;
      Hyper h = make(arena, c);
      h.post = arena.normal(DType::kF32, {c.rows, c.streams});
      h.comb = arena.normal(DType::kF32, {c.rows, c.streams, c.streams});
      Hyper f = h;
      f.x = arena.copy(h.x), f.post = arena.copy(h.post), f.comb = arena.copy(h.comb);
      f.y = arena.copy(h.y);
      Workspace w(target::hyper_split_workspace(c.rows, h.w.fn.shape[0]));
      target::hyper_post(on(m), h.a, h.post, h.comb, h.x);
      target::hyper_pre_split(on(m), h.x, h.w, h.p, h.y, h.post, h.comb, w.tensor);
      target::hyper_post_pre_split(on(m), f.a, f.x, f.w, f.p, f.y, f.post, f.comb, w.tensor);
      expect_same(f.x, h.x, "streams");
      expect_same(f.y, h.y, "y");
      expect_same(f.post, h.post, "post");
      expect_same(f.comb, h.comb, "comb");
      EXPECT_TRUE(arena.padding_untouched() && w.end_untouched());
    }
  }
}

TEST(HyperSplit, HeadMatchesDouble) {
  for (const Case& c : cases()) {
    for (auto m : machines()) {
      Arena arena;
      Hyper h = make(arena, c, true);
      Workspace w(target::hyper_split_workspace(c.rows, c.streams));
      target::hyper_head_split(on(m), h.x, h.w, h.p, h.y, w.tensor);
      double size = 300.0 * static_cast<double>(c.rows);
      expect_close(h.y, pre(h, true).y, rounding(c.type), tolerance(c) * size, name(c));
      EXPECT_TRUE(arena.padding_untouched() && w.end_untouched());
    }
  }
}

// Neither the order of threads, nor the grid, nor the other tokens, nor how rows are read change a
// bit.
TEST(HyperSplit, ResultsDependOnTheTokenAlone) {
  Arena arena;
  Hyper h = make(arena, {DType::kBF16, 17, 4, 1096, 0.05});
  Workspace w(target::hyper_split_workspace(17, 24));
  for (int warp : {32, 64}) {
    Machine in_order{warp, 0}, shuffled{warp, 5, 2};
    target::hyper_pre_split(on(in_order), h.x, h.w, h.p, h.y, h.post, h.comb, w.tensor);
    Hyper other = whole_rows(arena, h);
    other.comb = arena.poison(DType::kF32, {17, 4, 4});
    target::hyper_pre_split(on(shuffled), other.x, h.w, h.p, other.y, h.post, other.comb, w.tensor);
    expect_same(other.y, h.y, "shuffled");
    expect_same(other.comb, h.comb, "shuffled");
    Tensor x = h.x.slice(0, 6, 7), y = arena.poison(DType::kBF16, {1, 1096});
    Tensor comb = arena.poison(DType::kF32, {1, 4, 4}), post = arena.poison(DType::kF32, {1, 4});
    target::hyper_pre_split(on(in_order), x, h.w, h.p, y, post, comb, w.tensor);
    expect_same(y, h.y.slice(0, 6, 7), "alone");
    expect_same(comb, h.comb.slice(0, 6, 7), "alone");
    expect_same(post, h.post.slice(0, 6, 7), "alone");
  }
}

}  // namespace
}  // namespace hadal
