// Lightning-indexer scores and top-k against double precision and a plain sort.
#include <algorithm>
#include <numeric>

#include "gpu/batches.h"
#include "gpu/reference.h"

namespace hadal {
namespace {

using namespace reference;

struct Shape {
  int64_t heads, width;
  int ratio, page_size;
  int pad = 1;  // unused numbers behind each row: 8 keeps vectors whole
};

using Scores = void(GpuStream, const Batch&, const IndexScore&);

class Index : public testing::TestWithParam<std::tuple<DType, bool, Shape>> {};

void check_scores(Scores* scores, DType type, bool round, const Shape& shape) {
  for (auto m : machines()) {
    Arena arena;
    Steps steps({{3, 0}, {1, 150}, {2, 64}}, shape.page_size, 5);
    IndexScore a;
    a.q = arena.normal(type, {6, shape.heads, shape.width}, shape.pad,
                       [](int64_t i) { return i + 1.0; });
    a.weights = arena.normal(DType::kF32, {6, shape.heads}, 2);
    a.keys = arena.normal(type, {steps.page_count, shape.page_size, shape.width}, shape.pad);
    a.table = steps.table, a.ratio = shape.ratio, a.round_bf16 = round;
    a.row0 = 1, a.rows = 4;
    a.scores = arena.poison(DType::kF32, {4, 160}, 1);
    scores(on(m), steps.batch, a);
    Doubles want, size;
    Arena::each(a.scores, [&](int64_t i, int64_t j, int64_t) {
      int64_t t = i + 1, s = steps.sequence[t];
      double sum = 0, most = 0;
      for (int64_t h = 0; j < (steps.positions[t] + 1) / shape.ratio && h < shape.heads; ++h) {
        int64_t at = steps.entry_row(s, j);
        double dot = 0;
        for (int64_t d = 0; d < shape.width; ++d)
          dot += get(a.q, t, h, d) * get(a.keys, at / shape.page_size, at % shape.page_size, d);
        sum += std::max(dot, 0.0) * get(a.weights, t, h);
        most += std::fabs(dot * get(a.weights, t, h));
      }
      want.push_back(j < (steps.positions[t] + 1) / shape.ratio ? sum : NAN);
      size.push_back(most);
    });
    double worst = *std::max_element(size.begin(), size.end());
    // Each term's dot, the term and the sum are rounded to bf16 in the second form.
    expect_close(a.scores, want, round ? 0x1p-8 : 1e-6, worst * (round ? 0x1p-8 : 1e-6),
                 describe(m));
    EXPECT_TRUE(arena.padding_untouched());
    for (int64_t i = 0; round && i < 4; ++i) {  // its results are bf16 numbers
      auto v = static_cast<float>(get(a.scores, i, 0));
      EXPECT_TRUE(std::isnan(v) || v == round_bf16(v));
    }
  }
}

TEST_P(Index, ScoresMatchDouble) {
  auto [type, round, shape] = GetParam();
  check_scores(target::index_score, type, round, shape);
}

TEST_P(Index, ScoresOfFewRowsMatchDouble) {
  auto [type, round, shape] = GetParam();
  check_scores(target::index_score_few, type, round, shape);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Index,
                         testing::Combine(testing::Values(DType::kF32, DType::kBF16),
                                          testing::Bool(),
                                          testing::Values(Shape{5, 33, 1, 16}, Shape{20, 64, 4, 1},
                                                          Shape{70, 128, 1, 64, 8})));

TEST(Index, Weights) {
  for (auto m : machines()) {
    for (bool round : {false, true}) {
      Arena arena;
      Tensor raw = arena.normal(DType::kBF16, {5, 33}, 3),
             out = arena.poison(DType::kF32, {5, 33}, 1);
      target::index_weights(on(m), raw, 0.37f, round, out);
      Doubles want;
      Arena::each(raw,
                  [&](int64_t i, int64_t j, int64_t) { want.push_back(get(raw, i, j) * 0.37f); });
      expect_close(out, want, round ? 0x1p-8 : 1e-7, 0, describe(m));
      EXPECT_TRUE(arena.padding_untouched());
    }
  }
}

// Rows with `visible` scores each of one step, scores drawn by f(random).
template <class F>
void check_topk(std::vector<int> visible, int ratio, int64_t k, F&& draw) {
  for (auto m : machines()) {
    Arena arena(7);
    std::vector<Steps::Sequence> sequences = {{1, 3}};  // a row before row0
    for (int v : visible) sequences.push_back({1, v * ratio + ratio - 2});
    Steps steps(sequences, 4, 1);
    int64_t rows = static_cast<int64_t>(visible.size()), widest = 0;
    for (int v : visible) widest = std::max<int64_t>(widest, v);
    Tensor scores = arena.poison(DType::kF32, {rows, widest}, 3);
    for (int64_t i = 0; i < rows; ++i)
      for (int j = 0; j < visible[i]; ++j) set(scores, draw(arena.random()), i, j);
    Tensor out = arena.poison(DType::kI32, {rows, k});
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < k; ++j) set(out, -77, i, j);
    target::topk(on(m), steps.batch, 1, scores, ratio, out);
    for (int64_t i = 0; i < rows; ++i) {
      ASSERT_EQ((steps.positions[i + 1] + 1) / ratio, visible[i]);
      std::vector<int> order(visible[i]);
      std::iota(order.begin(), order.end(), 0);
      auto value = [&](int j) {
        double v = get(scores, i, j);
        return std::isnan(v) ? -INFINITY : v;
      };
      std::stable_sort(order.begin(), order.end(),
                       [&](int a, int b) { return value(a) > value(b); });
      order.resize(std::min<size_t>(order.size(), k));
      std::sort(order.begin(), order.end());
      order.resize(k, -1);
      for (int64_t j = 0; j < k; ++j)
        ASSERT_EQ(get(out, i, j), order[j]) << "row " << i << " " << describe(m);
    }
    EXPECT_TRUE(arena.padding_untouched());
  }
}

TEST(Topk, IsTheSortedPrefix) {
  auto normal = [](auto& r) { return std::normal_distribution<double>()(r); };
  check_topk({1, 15, 16, 17, 300, 777}, 1, 16, normal);
  check_topk({0, 5, 64, 65, 600}, 4, 64, normal);
}

TEST(Topk, EqualScoresAndStrangeOnes) {
  check_topk({100, 300}, 1, 33, [](auto& r) { return static_cast<double>(r() % 3); });
  check_topk({100, 300}, 1, 33, [](auto&) { return 0.0; });
  check_topk({100, 300}, 1, 33, [](auto& r) {
    const double values[] = {0.0, -0.0, INFINITY, -1e-40, 1e-40, -3e38};
    return values[r() % 6];
  });
}

}  // namespace
}  // namespace hadal
