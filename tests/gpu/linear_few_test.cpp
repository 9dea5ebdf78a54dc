// Matrix products for few rows against double-precision sums: every pair of formats, row counts
// around the passes over W, sizes that no team divides, strided rows, slices that start inside a
// scale block, experts without rows, shapes that go to the tiles.
#include "gpu/linear_cases.h"

namespace hadal {
namespace {

using namespace reference;

#ifdef __SANITIZE_THREAD__  // the barriers are the same for all formats
const DType kActivations[] = {DType::kF8E4M3};
const Format kWeights[] = {{DType::kF32, DType::kI8, DType::kF8E8M0},
                           {DType::kF32, DType::kF8E4M3, DType::kF8E8M0}};
const int64_t kRowCounts[] = {3};
#else
const DType kActivations[] = {DType::kF32, DType::kBF16, DType::kF8E4M3};
const Format kWeights[] = {
    {DType::kF32, DType::kF32, DType::kF32},       {DType::kF32, DType::kBF16, DType::kF32},
    {DType::kF32, DType::kF16, DType::kF32},       {DType::kF32, DType::kF8E4M3, DType::kF32},
    {DType::kF32, DType::kF8E4M3, DType::kF8E8M0}, {DType::kF32, DType::kI8, DType::kF8E8M0}};
const int64_t kRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
#endif

std::vector<Format> formats() {
  std::vector<Format> all;
  for (Format f : kWeights)
    for (DType x : kActivations) all.push_back({x, f.w, f.scale});
  return all;
}

void check_linear(const Format& f, int64_t m, int64_t n, int64_t k, DType out, Rows rows) {
  Arena arena;
  Activation x = random_activation(arena, f.x, m, k, rows);
  Weight w = random_weight(arena, f.w, n, k, f.scale, 77, rows);
  std::vector<Dot> want = product(x, w);
  for (auto machine : machines()) {
    Tensor y = arena.poison(out, {m, n}, 3);
    target::linear_few(on(machine), x, w, y);
    expect_dots(y, want, name(f) + " m " + std::to_string(m) + " " + describe(machine));
  }
  EXPECT_TRUE(arena.padding_untouched());
}

TEST(LinearFew, EveryRowCount) {
  for (const Format& f : formats())
    for (int64_t m : kRowCounts) check_linear(f, m, 37, 288, DType::kF32, Rows::kWhole);
}

// Teams of 8 to 32 lanes; K in one step, in several, and shared by up to eight teams.
TEST(LinearFew, EveryCutOfK) {
  for (const Format& f : formats())
    for (auto [n, k] : {std::tuple{70, 32}, {9, 160}, {131, 544}, {5, 2080}, {3, 7168}, {2, 9216}})
      for (DType out : {DType::kF32, DType::kBF16}) check_linear(f, 1, n, k, out, Rows::kWhole);
}

TEST(LinearFew, RowsThatAreNoWholePieces) {
  for (const Format& f : formats()) {
    check_linear(f, 3, 9, f.w == DType::kI8 ? 160 : 147, DType::kF32, Rows::kOdd);
    if (f.w != DType::kI8) check_linear(f, 1, 9, 147, DType::kF32, Rows::kWhole);
  }
}

TEST(LinearFew, ARowDependsOnItselfAlone) {
  for (const Format& f : formats()) {
    Arena arena;
    Activation x = random_activation(arena, f.x, 9, 2080);
    Weight w = random_weight(arena, f.w, 30, 2080, f.scale, 100);
    Tensor y = arena.poison(DType::kF32, {9, 30});
    Machine in_order{32, 0}, shuffled{64, 3, 1};
    target::linear_few(on(in_order), x, w, y);
    for (int64_t i : {0, 1, 7, 8}) {
      Tensor one = arena.poison(DType::kF32, {1, 30});
      Activation row = {x.data.slice(0, i, i + 1), x.scale};
      if (!x.scale.empty()) row.scale = x.scale.slice(0, i, i + 1);
      target::linear_few(on(shuffled), row, w, one);
      expect_same(one, y.slice(0, i, i + 1), name(f) + " alone, on another warp width");
    }
  }
}

// A NaN, or a NaN code, stays in its row of x or its column of y.
TEST(LinearFew, NaNStaysWhereItBelongs) {
  Arena arena;
  Activation x = random_activation(arena, DType::kF8E4M3, 3, 512);
  Weight w = random_weight(arena, DType::kF8E4M3, 6, 512, DType::kF8E8M0);
  set(x.data, NAN, 1, 300);
  set(w.data, NAN, 5, 17);
  for (auto machine : machines()) {
    Tensor y = arena.poison(DType::kF32, {3, 6});
    target::linear_few(on(machine), x, w, y);
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t j = 0; j < 6; ++j)
        EXPECT_EQ(std::isnan(get(y, i, j)), i == 1 || j == 5) << i << ", " << j;
  }
}

TEST(LinearFew, TwoWeightsAtOnce) {
  for (const Format& f : formats()) {
    Arena arena;
    Activation x = random_activation(arena, f.x, 3, 256);
    Weight w0 = random_weight(arena, f.w, 37, 256, f.scale, 77),
           w1 = random_weight(arena, f.w, 37, 256, f.scale, 77);
    for (auto machine : machines()) {
      Tensor y0 = arena.poison(DType::kBF16, {3, 37}, 3),
             y1 = arena.poison(DType::kBF16, {3, 37}, 3);
      target::linear_pair_few(on(machine), x, w0, w1, y0, y1);
      expect_dots(y0, product(x, w0), name(f) + " first, " + describe(machine));
      expect_dots(y1, product(x, w1), name(f) + " second, " + describe(machine));
    }
    EXPECT_TRUE(arena.padding_untouched());
  }
}

void check_experts(const Format& f, int64_t n, int64_t k, const std::vector<int>& ends,
                   bool gathered) {
  auto launch = [](Machine& m, const Activation& x, const int32_t* rows, const int32_t* offsets,
                   std::span<const Weight> w,
                   const Tensor& y) { target::grouped_linear_few(on(m), x, rows, offsets, w, y); };
  reference::check_experts(f, n, k, ends, gathered, machines(), launch);
}

TEST(LinearFew, ExpertsTakeTheirRows) {
  for (const Format& f : formats())
    for (bool gathered : {false, true}) check_experts(f, 67, 96, {0, 3, 3, 4, 13, 15}, gathered);
}

// More experts than a block has threads; a few have rows.
TEST(LinearFew, ManyExperts) {
  std::vector<int> ends(301, 0);
  for (int e = 1; e <= 300; ++e)
    ends[e] = ends[e - 1] + (e == 7 || e == 256 || e == 257 || e == 300) + (e == 257);
  check_experts({DType::kF8E4M3, DType::kI8, DType::kF8E8M0}, 5, 64, ends, true);
  check_experts({DType::kF8E4M3, DType::kF8E4M3, DType::kF32}, 3, 64, ends, false);
}

TEST(LinearFew, NoRows) {
  Arena arena;
  Weight w = random_weight(arena, DType::kI8, 8, 64, DType::kF8E8M0);
  Tensor offsets = arena.integers(DType::kI32, {2}, 1);
  for (auto machine : machines()) {
    Tensor y = arena.poison(DType::kF32, {2, 8});
    Activation x = random_activation(arena, DType::kBF16, 2, 64);
    target::grouped_linear_few(on(machine), x, nullptr, offsets.at<int32_t>(), {&w, 1}, y);
    target::linear_few(on(machine), {x.data.slice(0, 0, 0), {}}, w, y.slice(0, 0, 0));
    Arena::each(y, [&](int64_t i, int64_t j, int64_t) { EXPECT_TRUE(std::isnan(get(y, i, j))); });
  }
}

// The sums over w[g], or over its other index.
std::vector<Dot> heads(const Tensor& x, const std::vector<Weight>& w, const Tensor& y,
                       bool transposed) {
  std::vector<Dot> want;
  Arena::each(y, [&](int64_t i, int64_t g, int64_t j) {
    Dot d;
    for (int64_t c = 0; c < x.shape[2]; ++c)
      d.add(get(x, i, g, c),
            transposed ? weight_value(on_host(w[g]), c, j) : weight_value(on_host(w[g]), j, c));
    want.push_back(d);
  });
  return want;
}

void check_heads(DType type, DType scale, int64_t m, int64_t n, int64_t k, Rows rows) {
  int64_t groups = 3;
  for (DType active : {DType::kF32, DType::kBF16}) {
    Arena arena;
    // Two kinds of rows per head, as in kv_b_proj: the second kind is used.
    Weight whole = random_weight(arena, type, groups * (n + 24), k, scale, 0, rows);
    std::vector<Weight> w;
    for (int64_t g = 0; g < groups; ++g)
      w.push_back(whole.rows(g * (n + 24) + 24, (g + 1) * (n + 24)));
    Tensor x = arena.normal(active, {m, groups, k}, padding(active, rows)),
           xt = arena.normal(active, {m, groups, n}, 1);
    std::string what = std::string(dtype_name(active)) + " x " + dtype_name(type);
    for (auto machine : machines()) {
      Tensor y = arena.poison(active, {m, groups, n}, 1), yt = arena.poison(active, {m, groups, k});
      target::batched_linear_few(on(machine), x, w, y);
      expect_dots(y, heads(x, w, y, false), what + ", " + describe(machine));
      target::batched_linear_transposed_few(on(machine), xt, w, yt);
      expect_dots(yt, heads(xt, w, yt, true), what + " transposed, " + describe(machine));
    }
    EXPECT_TRUE(arena.padding_untouched());
  }
}

TEST(LinearFew, HeadsAndTheirTranspose) {
  for (const Format& f : kWeights) {
    if (f.w == DType::kI8) continue;
    for (int64_t m : kRowCounts)
      if (m < 5) check_heads(f.w, f.scale, m, 40, 144, Rows::kWhole);
    check_heads(f.w, f.scale, 1, 300, 80, Rows::kWhole);
    check_heads(f.w, f.scale, 2, 40, 70, Rows::kOdd);
  }
}

}  // namespace
}  // namespace hadal
