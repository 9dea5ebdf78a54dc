// Attention with the keys of a row split over blocks, against double precision: any number of
// heads, pages of 1, 16 and 64 entries in a random order, selections with gaps, rows that see
// nothing, more keys than there are chunks, workspaces full of NaN or of another step's numbers.
// And what a row may not depend on: the other rows, the grid, the longest possible row.
#include "gpu/attention_reference.h"
#include "gpu/batches.h"
#include "gpu/reference.h"

namespace hadal {
namespace {

using namespace reference;

using MlaOp = void(GpuStream, const Batch&, const MlaAttention&, const Tensor&);
using SparseOp = void(GpuStream, const Batch&, const SparseAttention&, const Tensor&);

struct Mla {
  DType type;
  int64_t heads, width, values;
  int page_size;
  int64_t listed;  // 0: all keys
  int pad = 8;     // unused numbers behind each row: 8 keeps vectors whole
};

// Inputs whose rows differ in size, with one key 100 times larger than the others.
MlaAttention make(Arena& arena, const Mla& c, const Steps& steps) {
  int64_t rows = steps.batch.rows;
  MlaAttention a;
  a.q = arena.normal(c.type, {rows, c.heads, c.width}, c.pad,
                     [](int64_t i) { return static_cast<double>(i % 8) * 0.5 + 1; });
  a.entries = arena.normal(c.type, {steps.page_count, c.page_size, c.width}, c.pad);
  int64_t large = steps.entry_row(0, 0);
  for (int64_t d = 0; d < c.width; ++d) {
    double v = get(a.entries, large / c.page_size, large % c.page_size, d);
    set(a.entries, 100 * v, large / c.page_size, large % c.page_size, d);
  }
  a.table = steps.table;
  a.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c.width)));
  a.out = arena.poison(c.type, {rows, c.heads, c.values}, c.pad);
  if (!c.listed) return a;
  a.selected = arena.poison(DType::kI32, {rows, c.listed}, 2);
  for (int64_t t = 0; t < rows; ++t)  // gaps in the middle and at the end
    for (int64_t i = 0, j = t % 2; i < c.listed && j <= steps.positions[t]; ++i)
      if (i % 5 != 3) set(a.selected, static_cast<double>(j), t, i), j += 3;
  return a;
}

void expect_mla(const Mla& c, const Steps& steps, const MlaAttention& a, const std::string& what) {
  for (int64_t t = 0; t < steps.batch.rows; ++t) {
    std::vector<Doubles> keys;
    auto add = [&](int64_t j) {
      int64_t at = steps.entry_row(steps.sequence[t], j);
      keys.push_back(row_of(a.entries, at / c.page_size, at % c.page_size));
    };
    for (int64_t j = 0; !c.listed && j <= steps.positions[t]; ++j) add(j);
    for (int64_t i = 0; i < c.listed; ++i)
      if (get(a.selected, t, i) >= 0) add(static_cast<int64_t>(get(a.selected, t, i)));
    for (int64_t h = 0; h < c.heads; ++h)
      expect_attended(a.out, t, h, attend(row_of(a.q, t, h), keys, a.scale, -INFINITY, c.values),
                      what);
  }
}

int64_t most_keys(const MlaAttention& a) {
  return a.selected.empty() ? a.table.stride * a.table.page_size : a.selected.shape[1];
}

void check_mla(const Mla& c, std::vector<Steps::Sequence> sequences, Machine m,
               MlaOp* op = target::mla_attention_split) {
  Arena arena;
  Steps steps(sequences, c.page_size, 9);
  MlaAttention a = make(arena, c, steps);
  Workspace w(target::attention_split_workspace(steps.batch.rows, c.heads, c.values, most_keys(a)));
  op(on(m), steps.batch, a, w.tensor);
  expect_mla(c, steps, a,
             "heads " + std::to_string(c.heads) + " page " + std::to_string(c.page_size) + " " +
                 describe(m));
  EXPECT_TRUE(arena.padding_untouched() && w.end_untouched());
}

TEST(MlaAttentionSplit, AnyNumberOfHeadsAndPageSize) {
  for (auto m : machines()) {
    for (int64_t heads : {1, 3, 8, 15, 32})
      check_mla({DType::kF32, heads, 40, 24, heads == 3 ? 1 : 16, 0}, {{2, 0}, {1, 20}, {1, 67}},
                m);
    check_mla({DType::kBF16, 9, 40, 32, 64, 0}, {{2, 0}, {4, 70}, {1, 5}}, m);
    check_mla({DType::kBF16, 9, 40, 20, 64, 0, 3}, {{2, 0}, {2, 70}}, m);  // no whole vectors
    check_mla({DType::kF32, 2, 5, 3, 16, 0, 1}, {{1, 33}}, m);
    check_mla({DType::kBF16, 2, 3, 1, 16, 0, 1}, {{1, 33}}, m);
  }
}

TEST(MlaAttentionSplit, ReleasedShapes) {
  for (auto m : machines()) {
    check_mla({DType::kBF16, 17, 576, 512, 64, 0}, {{1, 70}}, m);
    check_mla({DType::kBF16, 16, 576, 512, 64, 48}, {{1, 200}}, m);
    check_mla({DType::kF32, 3, 576, 512, 64, 0}, {{1, 40}}, m);
  }
}

TEST(MlaAttentionSplit, Selections) {
  for (auto m : machines()) {
    check_mla({DType::kF32, 5, 33, 17, 1, 67, 1}, {{3, 0}, {1, 261}}, m);
    check_mla({DType::kBF16, 4, 40, 32, 16, 100}, {{1, 0}, {2, 400}}, m);
  }
}

TEST(MlaAttentionSplit, SeventeenToSixtyFiveRows) {
  for (auto m : machines())
    for (int32_t rows : {17, 65}) check_mla({DType::kBF16, 3, 16, 16, 16, 0}, {{rows, 3}}, m);
}

#ifndef __SANITIZE_THREAD__  // too slow for it
// More spans than chunks: a block walks over several.
TEST(MlaAttentionSplit, MoreKeysThanChunks) {
  for (auto m : machines()) {
    check_mla({DType::kBF16, 128, 16, 8, 64, 0}, {{1, 400}}, m);  // ten chunks
    check_mla({DType::kF32, 128, 8, 8, 64, 0}, {{1, 350}}, m);
  }
  check_mla({DType::kBF16, 5, 16, 16, 64, 0}, {{1, 2600}}, machines()[0]);  // 64 chunks
}
#endif

TEST(MlaAttentionSplit, NoKeyGivesZero) {
  for (auto m : machines()) {
    Arena arena;
    Steps steps({{1, 4}}, 16, 1);
    MlaAttention a;
    a.q = arena.normal(DType::kF32, {1, 3, 20});
    a.entries = arena.normal(DType::kF32, {steps.page_count, 16, 20});
    a.table = steps.table;
    a.selected = arena.poison(DType::kI32, {1, 90});  // all -1
    a.out = arena.poison(DType::kF32, {1, 3, 20});
    Workspace w(target::attention_split_workspace(1, 3, 20, 90));
    target::mla_attention_split(on(m), steps.batch, a, w.tensor);
    expect_close(a.out, Doubles(60, 0.0), 0, 0, describe(m));
  }
}

// What a captured graph does: the same call with other positions, the workspace as it was left.
TEST(MlaAttentionSplit, OtherLengthsInTheSameCall) {
  for (auto m : machines()) {
    Arena arena;
    Mla c = {DType::kBF16, 11, 40, 32, 16, 0};
    Steps steps({{1, 300}, {2, 40}}, 16, 4);
    MlaAttention a = make(arena, c, steps);
    Workspace w(target::attention_split_workspace(3, c.heads, c.values, most_keys(a)));
    for (auto positions : {std::vector{300, 40, 41}, {31, 260, 0}, {32, 64, 150}}) {
      std::copy(positions.begin(), positions.end(), steps.positions.begin());
      target::mla_attention_split(on(m), steps.batch, a, w.tensor);
      expect_mla(c, steps, a, describe(m));
    }
  }
}

// Neither the other rows, nor the grid, nor how long a row might be, nor how it is loaded change a
// bit.
TEST(MlaAttentionSplit, ARowDependsOnItselfAlone) {
  for (DType type : {DType::kBF16, DType::kF32}) {
    Arena arena;
    Mla c = {type, 70, 40, 40, 16, 0};
    Steps steps({{1, 30}, {1, 600}, {2, 3}}, 16, 2), alone({{1, 600}}, 16, 2);
    MlaAttention a = make(arena, c, steps);
    Workspace w(target::attention_split_workspace(4, c.heads, c.values, most_keys(a)));
    Machine in_order{32, 0}, shuffled{32, 8, 1};
    target::mla_attention_split(on(in_order), steps.batch, a, w.tensor);
    // The second row alone, in a table with room for far longer ones.
    Vector<int32_t> pages(4096, -1);
    std::copy_n(steps.pages.begin() + steps.table.stride, steps.table.stride, pages.begin());
    MlaAttention one = a;
    one.q = arena.poison(type, {1, c.heads, 40}, 1);
    one.entries = arena.poison(type, {steps.page_count, 16, 40}, 1);
    Arena::each(one.q, [&](int64_t i, int64_t j, int64_t k) {
      set(one.q, get(a.q, i + 1, j, k), i, j, k);
    });
    Arena::each(one.entries, [&](int64_t i, int64_t j, int64_t k) {
      set(one.entries, get(a.entries, i, j, k), i, j, k);
    });
    one.out = arena.poison(type, {1, c.heads, 40});
    one.table.pages = on_device(pages.data());
    one.table.stride = 4096;
    Workspace other(target::attention_split_workspace(1, c.heads, c.values, most_keys(one)));
    target::mla_attention_split(on(shuffled), alone.batch, one, other.tensor);
    expect_same(one.out, a.out.slice(0, 1, 2), "alone");
  }
}

// A million possible keys are no more blocks and no more workspace than a few thousand.
TEST(MlaAttentionSplit, WorkspaceIsBounded) {
  EXPECT_EQ(target::attention_split_workspace(1, 16, 512, 1 << 20),
            target::attention_split_workspace(1, 16, 512, 4096));
  EXPECT_LE(target::attention_split_workspace(1, 16, 512, 1 << 20), int64_t{16} * 64 * 514 * 4);
  EXPECT_LE(target::attention_split_workspace(1, 128, 512, 1 << 20), int64_t{128} * 10 * 514 * 4);
}

struct Sparse {
  DType type;
  int64_t heads, width;
  int window, ratio, page_size;  // ratio 0: window alone
  int64_t listed;
  int pad = 8;
};

void check_sparse(const Sparse& c, Machine m, SparseOp* op = target::sparse_attention_split) {
  Arena arena;
  Steps steps({{5, 0}, {1, 37}, {3, 9}, {2, 330}}, c.page_size, 3);
  int64_t rows = steps.batch.rows, capacity = c.window + 5, longest = 340;
  // What every position of every sequence put into the window.
  Tensor history = arena.normal(c.type, {steps.batch.sequences, longest, c.width});
  SparseAttention a;
  a.q = arena.normal(c.type, {rows, c.heads, c.width}, c.pad,
                     [](int64_t i) { return static_cast<double>(i) * 0.3 + 1; });
  a.step_kv = arena.poison(c.type, {rows, c.width}, c.pad);
  a.ring = arena.poison(c.type, {steps.batch.sequences + 1, capacity, c.width}, c.pad);
  for (int64_t s = 0; s < steps.batch.sequences; ++s)
    for (int64_t p = std::max<int64_t>(0, steps.start[s] - capacity); p < steps.start[s]; ++p)
      for (int64_t d = 0; d < c.width; ++d)
        set(a.ring, get(history, s, p, d), steps.slot[s], p % capacity, d);
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t d = 0; d < c.width; ++d)
      set(a.step_kv, get(history, steps.sequence[t], steps.positions[t], d), t, d);
  a.window = c.window, a.ratio = c.ratio, a.table = steps.table;
  if (c.ratio) a.entries = arena.normal(c.type, {steps.page_count, c.page_size, c.width}, c.pad);
  if (c.listed) {
    a.selected = arena.poison(DType::kI32, {rows, c.listed});
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t i = 0, j = 0; i < c.listed && j < (steps.positions[t] + 1) / c.ratio;
           j += 2, ++i)
        set(a.selected, static_cast<double>(j), t, i);
  }
  a.sink = arena.normal(DType::kF32, {c.heads}, 0, [](int64_t) { return 3.0; });
  a.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c.width)));
  a.out = arena.poison(c.type, {rows, c.heads, c.width}, c.pad);
  int64_t entries = c.listed ? c.listed : steps.table.stride * c.page_size;
  Workspace w(target::attention_split_workspace(rows, c.heads, c.width,
                                                c.window + (c.ratio ? entries : 0)));
  op(on(m), steps.batch, a, w.tensor);
  for (int64_t t = 0; t < rows; ++t) {
    int64_t s = steps.sequence[t], p = steps.positions[t];
    std::vector<Doubles> keys;
    for (int64_t i = std::max<int64_t>(0, p - c.window + 1); i <= p; ++i)
      keys.push_back(row_of(history, s, i));
    for (int64_t j = 0, n = 0; c.ratio && j < (p + 1) / c.ratio; j += c.listed ? 2 : 1) {
      if (c.listed && n++ >= c.listed) break;
      int64_t at = steps.entry_row(s, j);
      keys.push_back(row_of(a.entries, at / c.page_size, at % c.page_size));
    }
    for (int64_t h = 0; h < c.heads; ++h)
      expect_attended(a.out, t, h,
                      attend(row_of(a.q, t, h), keys, a.scale, get(a.sink, h), c.width),
                      describe(m));
  }
  EXPECT_TRUE(arena.padding_untouched() && w.end_untouched());
}

TEST(SparseAttentionSplit, WindowEntriesAndSink) {
  for (auto m : machines()) {
    check_sparse({DType::kF32, 3, 48, 16, 0, 1, 0}, m);
    check_sparse({DType::kF32, 9, 33, 16, 4, 16, 0, 1}, m);
    check_sparse({DType::kBF16, 8, 64, 11, 4, 64, 72}, m);
    check_sparse({DType::kBF16, 5, 40, 128, 2, 16, 0}, m);
  }
}

TEST(SparseAttentionSplit, ReleasedShapes) {
  for (auto m : machines()) check_sparse({DType::kBF16, 8, 512, 128, 4, 64, 40}, m);
}

// On matrix units. Emulated products are slow: few shapes, and the released ones narrow.
TEST(AttentionMatrix, Mla) {
  MlaOp* op = target::mla_attention_matrix;
  for (auto m : machines()) {
    for (int64_t heads : {1, 7, 16, 17, 32})
      check_mla({DType::kBF16, heads, 48, 40, 16, 0}, {{2, 0}, {1, 40}}, m, op);
    check_mla({DType::kBF16, 3, 32, 32, 1, 70}, {{1, 0}, {1, 250}}, m, op);
    check_mla({DType::kBF16, 4, 40, 20, 64, 0, 3}, {{1, 50}}, m, op);  // the other way
    check_mla({DType::kF32, 4, 48, 40, 16, 0}, {{1, 50}}, m, op);
  }
  check_mla({DType::kBF16, 16, 576, 512, 64, 48}, {{1, 200}}, machines().back(), op);
}

#ifndef __SANITIZE_THREAD__
TEST(AttentionMatrix, MoreKeysThanChunks) {
  for (auto m : machines())
    check_mla({DType::kBF16, 128, 16, 8, 64, 0}, {{1, 350}}, m, target::mla_attention_matrix);
}
#endif

TEST(AttentionMatrix, Sparse) {
  for (auto m : machines())
    check_sparse({DType::kBF16, 5, 32, 40, 4, 16, 60}, m, target::sparse_attention_matrix);
}

}  // namespace
}  // namespace hadal
