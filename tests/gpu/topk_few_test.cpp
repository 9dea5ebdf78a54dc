// Top-k of few rows against a plain sort: rows around the number of threads, rows in one part and
// in several, equal scores, infinities and NaN.
#include <algorithm>
#include <numeric>

#include "gpu/batches.h"
#include "gpu/reference.h"

namespace hadal {
namespace {

using namespace reference;

using Draw = std::function<double(std::mt19937_64&)>;

// Rows with `visible` of `columns` scores each, one row before row0.
void check_topk(std::vector<int> visible, int64_t columns, int ratio, int64_t k, const Draw& draw,
                Machine m) {
  Arena arena(7);
  std::vector<Steps::Sequence> sequences = {{1, 3}};
  for (int v : visible) sequences.push_back({1, v * ratio + ratio - 2});
  Steps steps(sequences, 64, 1);
  int64_t rows = static_cast<int64_t>(visible.size());
  Tensor scores = arena.poison(DType::kF32, {rows, columns}, 3);
  for (int64_t i = 0; i < rows; ++i)
    for (int j = 0; j < visible[i]; ++j) set(scores, draw(arena.random()), i, j);
  Tensor out = arena.poison(DType::kI32, {rows, k}, 2);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < k; ++j) set(out, -77, i, j);
  int64_t bytes = target::topk_few_workspace(rows, columns, k);
  Tensor whole = arena.poison(DType::kI8, {bytes + 64}), workspace = whole.slice(0, 0, bytes);
  target::topk_few(on(m), steps.batch, 1, scores, ratio, out, workspace);
  for (int64_t i = 0; i < rows; ++i) {
    ASSERT_EQ((steps.positions[i + 1] + 1) / ratio, visible[i]);
    std::vector<double> value(visible[i]);
    for (int j = 0; j < visible[i]; ++j) {
      double v = get(scores, i, j);
      value[j] = std::isnan(v) ? -INFINITY : v;
    }
    std::vector<int> order(visible[i]);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return value[a] > value[b]; });
    order.resize(std::min<size_t>(order.size(), k));
    std::sort(order.begin(), order.end());
    order.resize(k, -1);
    for (int64_t j = 0; j < k; ++j)
      ASSERT_EQ(get(out, i, j), order[j]) << "row " << i << " place " << j << " " << describe(m);
  }
  EXPECT_TRUE(arena.padding_untouched());
  for (int64_t i = bytes; i < bytes + 64; ++i) EXPECT_EQ(get(whole, i), 0xff);
}

double normal(std::mt19937_64& r) { return std::normal_distribution<double>()(r); }

TEST(TopkFew, IsTheSortedPrefix) {
  for (auto m : machines()) {
    check_topk({1, 15, 16, 17, 300, 777}, 777, 1, 16, normal, m);
    check_topk({0, 5, 64, 65, 600}, 600, 4, 64, normal, m);
    check_topk({1023, 1024, 1025, 2049}, 2049, 4, 512, normal, m);
    check_topk({9001}, 32768, 1, 2048, normal, m);
  }
}

TEST(TopkFew, EqualScoresAndStrangeOnes) {
  const double values[] = {0.0, -0.0, INFINITY, -1e-40, 1e-40, -3e38};
  for (auto m : machines()) {
    check_topk(
        {100, 3000}, 3000, 1, 33, [](auto& r) { return static_cast<double>(r() % 3); }, m);
    check_topk(
        {100, 3000}, 3000, 1, 33, [](auto&) { return 0.0; }, m);
    check_topk(
        {100, 3000}, 3000, 1, 33, [&](auto& r) { return values[r() % 6]; }, m);
    check_topk(
        {100, 3000}, 3000, 1, 1500, [&](auto& r) { return r() % 2 ? NAN : values[r() % 6]; }, m);
  }
}

// Longer than a block takes: the best of each part, then the best of these.
TEST(TopkFew, SeveralParts) {
  for (auto m : machines()) {
    check_topk({40000, 100, 9000}, 40000, 1, 64, normal, m);
    check_topk(
        {33000}, 33000, 4, 40, [](auto& r) { return static_cast<double>(r() % 3); }, m);
  }
#ifndef __SANITIZE_THREAD__
  check_topk({262144}, 262144, 4, 1024, normal, machines()[0]);
#endif
}

}  // namespace
}  // namespace hadal
