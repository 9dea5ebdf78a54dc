// The tensor core products on fibers, with the product of a warp emulated, against double-precision
// sums: both kernels, every pair of formats, ragged numbers of rows and columns, strided rows,
// slices that start inside a scale block, experts whose rows only the device knows.
#ifdef HADAL_TEST_CUDA
#include "kernels/cuda/mma_linear.h"
#else  // the kernels too: nothing but this test needs them as fibers
#include "kernels/cuda/mma_linear.cu.h"
#endif

#include "gpu/mma_cases.h"

namespace hadal {
namespace {

using namespace reference;

// Tensor cores have warps of 32.
std::vector<Machine> narrow_machines() {
  std::vector<Machine> all;
  for (auto machine : machines())
    if (machine.warp_size == 32) all.push_back(machine);
  return all;
}

// Tiles are slow as fibers: threads and blocks out of order find what threads in order do.
std::vector<Machine> one_machine() { return {narrow_machines().back()}; }

void check_linear(const Format& f, int64_t m, int64_t n, int64_t k, DType out) {
  Arena arena;
  Activation x = random_activation(arena, f.x, m, k);
  Weight w = random_weight(arena, f.w, n, k, f.scale, 77);
  EXPECT_EQ(mma_linear_supports(x, w), "");
  std::vector<Dot> want = product(x, w);
  for (auto machine : m > 32 ? one_machine() : narrow_machines()) {
    Tensor y = arena.poison(out, {m, n}, 3);
    target::mma_linear(on(machine), x, w, y);
    expect_dots(y, want, name(f) + " m " + std::to_string(m) + " " + describe(machine));
  }
  EXPECT_TRUE(arena.padding_untouched());
}

TEST(MmaLinear, FewRows) {
  for (const Format& f : kMmaFormats) {
    for (int64_t m : {1, 2, 7, 8, 9, 17, 32}) check_linear(f, m, 37, 256, DType::kF32);
    check_linear(f, 3, 150, 128, DType::kBF16);
    check_linear(f, 2, 5, 2176, DType::kF32);  // K shared by eight warps
  }
}

TEST(MmaLinear, ManyRows) {
  for (const Format& f : kMmaFormats) {
    check_linear(f, 33, 67, 384, DType::kF32);
    check_linear(f, 70, 5, 1152, DType::kBF16);  // more steps than stages
  }
}

// Within the kernel of few rows, and within that of tiles.
TEST(MmaLinear, ARowDependsOnItselfAlone) {
  for (const Format& f : kMmaFormats) {
    Arena arena;
    Activation x = random_activation(arena, f.x, 60, 1152);
    Weight w = random_weight(arena, f.w, 30, 1152, f.scale, 100);
    auto some = [&](int64_t begin, int64_t end) {
      Activation rows = {x.data.slice(0, begin, end), x.scale};
      if (!x.scale.empty()) rows.scale = x.scale.slice(0, begin, end);
      Tensor y = arena.poison(DType::kF32, {end - begin, 30});
      Machine machine{32, static_cast<uint32_t>(end), 2};
      target::mma_linear(on(machine), rows, w, y);
      return y;
    };
    Tensor few = some(0, 20), many = some(0, 60);
    expect_same(some(19, 20), few.slice(0, 19, 20), name(f));
    expect_same(some(3, 12).slice(0, 1, 2), few.slice(0, 4, 5), name(f));
    expect_same(some(20, 60).slice(0, 39, 40), many.slice(0, 59, 60), name(f));
  }
}

TEST(MmaLinear, TwoWeightsAtOnce) {
  for (const Format& f : kMmaFormats) {
    Arena arena;
    Activation x = random_activation(arena, f.x, 3, 256);
    Weight w0 = random_weight(arena, f.w, 37, 256, f.scale, 77),
           w1 = random_weight(arena, f.w, 37, 256, f.scale, 77);
    for (auto machine : narrow_machines()) {
      Tensor y0 = arena.poison(DType::kBF16, {3, 37}, 3),
             y1 = arena.poison(DType::kBF16, {3, 37}, 3);
      target::mma_linear_pair(on(machine), x, w0, w1, y0, y1);
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
                   const Tensor& y) { target::mma_grouped_linear(on(m), x, rows, offsets, w, y); };
  reference::check_experts(f, n, k, ends, gathered, one_machine(), launch);
}

TEST(MmaLinear, ExpertsTakeTheirRows) {
  for (const Format& f : kMmaFormats) {
    check_experts(f, 67, 128, {0, 3, 3, 4, 48, 50}, true);        // few on average
    check_experts(f, 67, 128, {0, 70, 70, 71, 140, 205}, false);  // tiles
  }
}

// More experts than a block has threads; a few have rows.
TEST(MmaLinear, ManyExperts) {
  std::vector<int> few(301, 0), many(301, 0);
  for (int e = 1; e <= 300; ++e) {
    few[e] = few[e - 1] + (e == 7 || e == 256 || e == 257 || e == 300) + (e == 257);
    many[e] = many[e - 1] + (e == 7 ? 9700 : e == 256 || e == 258 ? 3 : e == 300 ? 65 : 0);
  }
  check_experts({DType::kF8E4M3, DType::kI8, DType::kF8E8M0}, 5, 128, few, true);
  check_experts({DType::kF8E4M3, DType::kF8E4M3, DType::kF32}, 1, 128, many, false);
}

TEST(MmaLinear, Heads) {
  for (const Format& f : kMmaFormats) {
    if (f.x != DType::kBF16) continue;
    for (int64_t m : {3, 40}) {
      Arena arena;
      int64_t groups = 3, n = 40, k = 256;
      // Two kinds of rows per head, as in kv_b_proj: the second kind is used.
      Weight whole = random_weight(arena, f.w, groups * (n + 24), k, f.scale);
      std::vector<Weight> w;
      for (int64_t g = 0; g < groups; ++g)
        w.push_back(whole.rows(g * (n + 24) + 24, (g + 1) * (n + 24)));
      Tensor x = arena.normal(DType::kBF16, {m, groups, k}, 8),
             y = arena.poison(DType::kBF16, {m, groups, n}, 1);
      std::vector<Dot> want;
      Arena::each(y, [&](int64_t i, int64_t g, int64_t j) {
        Dot d;
        for (int64_t c = 0; c < k; ++c) d.add(get(x, i, g, c), weight_value(on_host(w[g]), j, c));
        want.push_back(d);
      });
      for (auto machine : narrow_machines()) {
        target::mma_batched_linear(on(machine), x, w, y);
        expect_dots(y, want, name(f) + " " + describe(machine));
      }
      EXPECT_TRUE(arena.padding_untouched());
    }
  }
}

TEST(MmaLinear, HeadsTransposed) {
  for (const Format& f : kMmaFormats) {
    if (f.x != DType::kBF16 || f.w == DType::kI8) continue;
    for (auto [m, n, k] : {std::tuple{1, 128, 272}, {17, 80, 80}, {75, 48, 144}}) {
      for (int64_t pad : {1, 8}) {  // of y, whose pieces are then whole or not
        Arena arena;
        int64_t groups = 3;
        // Two kinds of rows per head, as in kv_b_proj: the second kind is used. Its scales change
        // within a head.
        Weight whole = random_weight(arena, f.w, groups * (n + 48), k, f.scale, 16);
        std::vector<Weight> w;
        for (int64_t g = 0; g < groups; ++g)
          w.push_back(whole.rows(g * (n + 48) + 48, (g + 1) * (n + 48)));
        Tensor x = arena.normal(DType::kBF16, {m, groups, n}, 2),
               y = arena.poison(pad == 1 ? DType::kF32 : DType::kBF16, {m, groups, k}, pad);
        EXPECT_EQ(mma_transposed_supports(x, w[0]), "");
        std::vector<Dot> want;
        Arena::each(y, [&](int64_t i, int64_t g, int64_t j) {
          Dot d;
          for (int64_t c = 0; c < n; ++c) d.add(get(x, i, g, c), weight_value(on_host(w[g]), c, j));
          want.push_back(d);
        });
        for (auto machine : narrow_machines()) {
          target::mma_batched_linear_transposed(on(machine), x, w, y);
          expect_dots(y, want, name(f) + " m " + std::to_string(m) + " " + describe(machine));
        }
        EXPECT_TRUE(arena.padding_untouched());
      }
    }
  }
}

TEST(MmaLinear, SaysWhatItDoesNotTake) {
  Arena arena;
  auto why = [&](DType x, DType w, int64_t k, Rows rows) {
    return mma_linear_supports(random_activation(arena, x, 2, k, rows),
                               random_weight(arena, w, 2, k, DType::kF8E8M0));
  };
  EXPECT_EQ(why(DType::kBF16, DType::kI8, 256, Rows::kWhole), "");
  EXPECT_EQ(why(DType::kF32, DType::kI8, 256, Rows::kWhole), "x is F32, not BF16 or F8_E4M3");
  EXPECT_EQ(why(DType::kBF16, DType::kF32, 256, Rows::kWhole),
            "W is F32, not F8_E4M3, FP4 or BF16");
  EXPECT_EQ(why(DType::kBF16, DType::kBF16, 160, Rows::kWhole), "K is 160, not a multiple of 128");
  EXPECT_EQ(why(DType::kBF16, DType::kBF16, 256, Rows::kOdd),
            "x has rows that do not begin at multiples of 16 bytes");
}

// A NaN, or a NaN code, stays in its row of x or its column of y.
TEST(MmaLinear, NaNStaysWhereItBelongs) {
  for (int64_t m : {3, 40}) {
    Arena arena;
    Activation x = random_activation(arena, DType::kF8E4M3, m, 512);
    Weight w = random_weight(arena, DType::kF8E4M3, 6, 512, DType::kF8E8M0);
    set(x.data, NAN, 1, 300);
    set(w.data, NAN, 5, 17);
    Tensor y = arena.poison(DType::kF32, {m, 6});
    Machine machine{32, 0};
    target::mma_linear(on(machine), x, w, y);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < 6; ++j)
        EXPECT_EQ(std::isnan(get(y, i, j)), i == 1 || j == 5) << i << ", " << j;
  }
}

}  // namespace
}  // namespace hadal
