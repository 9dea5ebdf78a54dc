// Embedding rows and the copies into caches: exact values, nothing else touched.
#include "kernels/copy.h"

#include "kernels/embed.h"
#include "kernels/sequences.h"

namespace hadal::test {
namespace {

TEST(Embed, RepeatsTheRowForEveryStream) {
  Rig rig;
  for (DType table_type : {DType::kF32, DType::kBF16, DType::kF16})
    for (DType out_type : {DType::kF32, DType::kBF16})
      for (int64_t streams : {1, 4}) {
        Array table(table_type, {11, 33}), out(out_type, {6, streams, 33});
        table.fill_normal();
        const int32_t ids[] = {0, 10, 3, 3, 7, 1};
        embed(rig.ctx, ids, table.view, out.view);
        for (int64_t i = 0; i < out.size(); ++i) {
          double v = table.at(ids[i / 33 / streams] * 33 + i % 33);
          EXPECT_EQ(out.at(i), out_type == DType::kBF16 ? round_bf16(static_cast<float>(v)) : v);
        }
      }
}

TEST(EmbedDeath, RefusesAnIdOutsideTheTable) {
  Rig rig(1);
  Array table(DType::kF32, {4, 8}), out(DType::kF32, {1, 1, 8});
  const int32_t id = 4;
  EXPECT_DEATH(embed(rig.ctx, &id, table.view, out.view), "token id 4");
}

TEST(RingWrite, KeepsTheLastRowsOfEachSequence) {
  Rig rig;
  for (DType t : {DType::kF32, DType::kBF16}) {
    StepRows rows({0, 3, 100, 6}, {5, 1, 40, 8});
    History h = random_history(rows, t, 12, 1);
    const int64_t capacity = 8;
    // What earlier steps left, then this step.
    Array step = step_part(rows, h), ring = ring_part(rows, h, capacity, capacity), before = ring;
    ring_write(rig.ctx, rows.batch, step.view, ring.view);
    for (int64_t s = 0; s < rows.sequences(); ++s)
      for (int64_t p = std::max<int64_t>(0, rows.length(s) - capacity); p < rows.length(s); ++p)
        for (int64_t i = 0; i < 12; ++i)
          ASSERT_EQ(ring.at((rows.slot[s] * capacity + p % capacity) * 12 + i), h[s].at(p * 12 + i))
              << "sequence " << s << " position " << p;
    int64_t bytes = capacity * 12 * dtype_size(t);
    for (int64_t slot = 0; slot < rows.slots(); ++slot) {
      bool used = std::find(rows.slot.begin(), rows.slot.end(), slot) != rows.slot.end();
      auto from = ring.storage.begin() + slot * bytes;
      EXPECT_TRUE(used || std::equal(from, from + bytes, before.storage.begin() + slot * bytes));
    }
  }
}

// history_row, the reader of what ring_write leaves, over steps of random sizes.
TEST(RingWrite, FeedsHistoryRowsAcrossSteps) {
  Rig rig;
  StepRows all({0}, {200});
  History h = random_history(all, DType::kF32, 4, 1);
  Array ring(DType::kF32, {3, 10, 4});
  for (int32_t p = 0; p < 200;) {
    int32_t fresh = std::min<int32_t>(200 - p, static_cast<int32_t>(uniform(1, 25)));
    StepRows rows({p}, {fresh});
    Array step = step_part(rows, h);
    for (int32_t i = std::max(0, p - 10); i < p + fresh; ++i)
      ASSERT_EQ(history_row<float>(ring.view, step.view, rows.batch, 0, i)[3], h[0].at(i * 4 + 3));
    ring_write(rig.ctx, rows.batch, step.view, ring.view);
    p += fresh;
  }
}

TEST(PageWrite, PutsEachRowAtItsPosition) {
  Rig rig;
  for (DType t : {DType::kF32, DType::kBF16, DType::kF8E4M3})
    for (int page : {1, 16, 64}) {
      StepRows rows({0, 15, 63, 130}, {20, 2, 3, 1});
      Pages pages(4, 140, page);
      Array step(t, {26, 7}), pool(t, {pages.count, page, 7});
      for (size_t i = 0; i < step.storage.size(); ++i)
        step.storage[i] = static_cast<uint8_t>(uniform(0, 255));
      page_write(rig.ctx, rows.batch, step.view, pages.table, pool.view);
      int64_t bytes = 7 * dtype_size(t);
      std::vector<uint8_t> want(pool.storage.size(), 0xFF);
      for (int64_t r = 0; r < 26; ++r)
        std::copy_n(step.storage.begin() + r * bytes, bytes,
                    want.begin() + pages.row(rows.sequence[r], rows.positions[r]) * bytes);
      EXPECT_EQ(pool.storage, want);
    }
}

TEST(GatherRows, CopiesTheNamedRows) {
  Rig rig;
  Array x(DType::kBF16, {9, 50}), out(DType::kBF16, {5, 40});
  x.fill_normal();
  const int32_t rows[] = {8, 0, 3, 3, 1};
  gather_rows(rig.ctx, x.view.slice(1, 10, 50), rows, 5, out.view);
  for (int64_t i = 0; i < out.size(); ++i)
    EXPECT_EQ(out.at(i), x.at(rows[i / 40] * 50 + 10 + i % 40));
}

}  // namespace
}  // namespace hadal::test
