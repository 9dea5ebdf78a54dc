// Embedding look-up and cache writes: whole results against the definitions, with rows
// that are no multiple of the copy's unit, several sequences, more rows than a ring holds.
#include "gpu/batches.h"
#include "gpu/reference.h"

namespace hadal {
namespace {

using namespace reference;

TEST(Embed, RowsOfTheTableInEveryStream) {
  for (auto m : machines()) {
    for (DType type : {DType::kF32, DType::kBF16}) {
      Arena arena;
      Tensor table = arena.normal(DType::kBF16, {11, 77}, 3);
      Tensor ids = arena.integers(DType::kI32, {5}, 11), out = arena.poison(type, {5, 4, 77}, 1);
      target::embed(on(m), ids.at<int32_t>(), table, out);
      Doubles want;
      Arena::each(out, [&](int64_t t, int64_t, int64_t c) {
        want.push_back(get(table, static_cast<int64_t>(get(ids, t)), c));
      });
      expect_close(out, want, 0, 0, describe(m));
      EXPECT_TRUE(arena.padding_untouched());
      set(ids, 11, 2);
      target::embed(on(m), ids.at<int32_t>(), table, out);
      EXPECT_TRUE(std::isnan(get(out, 2, 3, 76)));
    }
  }
}

// dtype, columns, padding: units of 16, 4, 2 and 1 bytes.
using Width = std::tuple<DType, int64_t, int64_t>;
class Copy : public testing::TestWithParam<Width> {};

TEST_P(Copy, RingKeepsTheLastRows) {
  auto [type, columns, pad] = GetParam();
  for (auto m : machines()) {
    Arena arena;
    Steps steps({{5, 0}, {1, 9}, {19, 3}}, 7, 4);  // the last one is longer than the ring
    Tensor step = arena.normal(type, {steps.batch.rows, columns}, pad);
    Tensor ring = arena.normal(type, {4, 8, columns}, pad);
    Doubles want = numbers(ring);
    for (int32_t t = 0; t < steps.batch.rows; ++t) {
      int64_t slot = steps.slot[steps.sequence[t]], at = steps.positions[t] % 8;
      for (int64_t c = 0; c < columns; ++c) want[(slot * 8 + at) * columns + c] = get(step, t, c);
    }
    target::ring_write(on(m), steps.batch, step, ring);
    expect_close(ring, want, 0, 0, describe(m));
    EXPECT_TRUE(arena.padding_untouched());
  }
}

TEST_P(Copy, PagesAndLists) {
  auto [type, columns, pad] = GetParam();
  for (auto m : machines()) {
    for (int page_size : {1, 16}) {
      Arena arena;
      Steps steps({{5, 0}, {1, 30}, {3, 14}}, page_size, 5);
      Tensor rows = arena.normal(type, {steps.batch.rows, columns}, pad);
      Tensor pool = arena.normal(type, {steps.page_count, page_size, columns}, pad);
      Doubles want = numbers(pool);
      for (int32_t t = 0; t < steps.batch.rows; ++t) {
        int64_t at = steps.entry_row(steps.sequence[t], steps.positions[t]);
        for (int64_t c = 0; c < columns; ++c) want[at * columns + c] = get(rows, t, c);
      }
      target::page_write(on(m), steps.batch, rows, steps.table, pool);
      expect_close(pool, want, 0, 0, "pages, " + describe(m));

      Tensor list = arena.integers(DType::kI32, {13}, steps.batch.rows);
      Tensor out = arena.poison(type, {13, columns}, pad);
      target::gather_rows(on(m), rows, list.at<int32_t>(), 13, out);
      want.clear();
      Arena::each(out, [&](int64_t i, int64_t c, int64_t) {
        want.push_back(get(rows, static_cast<int64_t>(get(list, i)), c));
      });
      expect_close(out, want, 0, 0, "list, " + describe(m));
      EXPECT_TRUE(arena.padding_untouched());
    }
  }
}

// One long row, which several blocks share, and so many units that a thread copies several.
TEST(CopyRows, LongAndMany) {
  for (auto m : machines()) {
    for (auto [type, count, columns] :
         {std::tuple{DType::kF32, 1, 2049}, {DType::kF32, 1, 2048}, {DType::kF8E4M3, 300, 1001}}) {
      Arena arena;
      Steps steps({{count, 7}}, 16, 5);
      int64_t pad = columns % 2 == 0 ? 4 : 3;
      Tensor step = arena.normal(type, {count, columns}, pad);
      Tensor ring = arena.normal(type, {2, 320, columns}, pad);
      Doubles want = numbers(ring);
      for (int64_t t = 0; t < count; ++t)
        for (int64_t c = 0; c < columns; ++c) want[(320 + 7 + t) * columns + c] = get(step, t, c);
      target::ring_write(on(m), steps.batch, step, ring);
      expect_close(ring, want, 0, 0, describe(m));
      EXPECT_TRUE(arena.padding_untouched());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, Copy,
                         testing::Values(Width{DType::kF32, 64, 0}, Width{DType::kBF16, 64, 2},
                                         Width{DType::kBF16, 33, 2}, Width{DType::kF8E4M3, 33, 0}));

}  // namespace
}  // namespace hadal
