// Attention against double precision: any number of heads, pages of 1, 16 and 64 entries
// in a random order, selections with gaps, windows that reach into the ring, sinks, pools beyond
// 4 GiB.
#include "gpu/attention_reference.h"
#include "gpu/batches.h"
#include "gpu/reference.h"

namespace hadal {
namespace {

using namespace reference;

struct Shape {
  DType type;
  int64_t heads, width, values;
  int page_size;
  int64_t listed;  // 0: all keys
};

void check_mla(const Shape& c, std::vector<Steps::Sequence> sequences, Machine m) {
  Arena arena;
  Steps steps(sequences, c.page_size, 9);
  int64_t rows = steps.batch.rows;
  MlaAttention a;
  a.q = arena.normal(c.type, {rows, c.heads, c.width}, 1, [](int64_t i) { return i * 0.5 + 1; });
  a.entries = arena.normal(c.type, {steps.page_count, c.page_size, c.width}, 3);
  a.table = steps.table;
  a.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c.width)));
  a.out = arena.poison(c.type, {rows, c.heads, c.values}, 2);
  if (c.listed) {
    a.selected = arena.poison(DType::kI32, {rows, c.listed}, 2);
    for (int64_t t = 0; t < rows; ++t)  // gaps in the middle and at the end
      for (int64_t i = 0, j = t % 2; i < c.listed && j <= steps.positions[t]; ++i)
        if (i % 5 != 3) set(a.selected, static_cast<double>(j), t, i), j += 3;
  }
  target::mla_attention(on(m), steps.batch, a);
  for (int64_t t = 0; t < rows; ++t) {
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
                      "heads " + std::to_string(c.heads) + " page " + std::to_string(c.page_size) +
                          " " + describe(m));
  }
  EXPECT_TRUE(arena.padding_untouched());
}

TEST(MlaAttention, AnyNumberOfHeadsAndPageSize) {
  for (auto m : machines()) {
    for (int64_t heads : {1, 3, 8, 15, 32})
      check_mla({DType::kF32, heads, 40, 24, heads == 3 ? 1 : 16, 0}, {{2, 0}, {1, 20}, {1, 67}},
                m);
    check_mla({DType::kBF16, 9, 40, 32, 64, 0}, {{2, 0}, {4, 70}, {1, 5}}, m);
  }
}

TEST(MlaAttention, ReleasedShapes) {
  for (auto m : machines()) {
    check_mla({DType::kBF16, 32, 576, 512, 64, 0}, {{1, 20}}, m);
    check_mla({DType::kBF16, 128, 576, 512, 64, 16}, {{1, 90}}, m);
  }
}

TEST(MlaAttention, Selections) {
  for (auto m : machines()) {
    check_mla({DType::kF32, 5, 33, 17, 1, 13}, {{3, 0}, {1, 61}}, m);
    check_mla({DType::kBF16, 4, 40, 32, 16, 24}, {{1, 0}, {2, 100}}, m);
  }
}

TEST(MlaAttention, NoKeyGivesZero) {
  for (auto m : machines()) {
    Arena arena;
    Steps steps({{1, 4}}, 16, 1);
    MlaAttention a;
    a.q = arena.normal(DType::kF32, {1, 3, 20});
    a.entries = arena.normal(DType::kF32, {steps.page_count, 16, 20});
    a.table = steps.table;
    a.selected = arena.poison(DType::kI32, {1, 9});  // all -1
    a.out = arena.poison(DType::kF32, {1, 3, 20});
    target::mla_attention(on(m), steps.batch, a);
    expect_close(a.out, Doubles(60, 0.0), 0, 0, describe(m));
  }
}

struct Sparse {
  DType type;
  int64_t heads, width;
  int window, ratio, page_size;  // ratio 0: window alone
  int64_t listed;
};

void check_sparse(const Sparse& c, Machine m) {
  Arena arena;
  Steps steps({{5, 0}, {1, 37}, {3, 9}, {2, 130}}, c.page_size, 3);
  int64_t rows = steps.batch.rows, capacity = c.window + 5, longest = 140;
  // What every position of every sequence put into the window.
  Tensor history = arena.normal(c.type, {steps.batch.sequences, longest, c.width});
  SparseAttention a;
  a.q = arena.normal(c.type, {rows, c.heads, c.width}, 1, [](int64_t i) { return i * 0.3 + 1; });
  a.step_kv = arena.poison(c.type, {rows, c.width}, 1);
  a.ring = arena.poison(c.type, {steps.batch.sequences + 1, capacity, c.width}, 2);
  for (int64_t s = 0; s < steps.batch.sequences; ++s)
    for (int64_t p = std::max<int64_t>(0, steps.start[s] - capacity); p < steps.start[s]; ++p)
      for (int64_t d = 0; d < c.width; ++d)
        set(a.ring, get(history, s, p, d), steps.slot[s], p % capacity, d);
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t d = 0; d < c.width; ++d)
      set(a.step_kv, get(history, steps.sequence[t], steps.positions[t], d), t, d);
  a.window = c.window, a.ratio = c.ratio, a.table = steps.table;
  if (c.ratio) a.entries = arena.normal(c.type, {steps.page_count, c.page_size, c.width}, 1);
  if (c.listed) {
    a.selected = arena.poison(DType::kI32, {rows, c.listed});
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t i = 0, j = 0; i < c.listed && j < (steps.positions[t] + 1) / c.ratio;
           j += 2, ++i)
        set(a.selected, static_cast<double>(j), t, i);
  }
  a.sink = arena.normal(DType::kF32, {c.heads}, 0, [](int64_t) { return 3.0; });
  a.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c.width)));
  a.out = arena.poison(c.type, {rows, c.heads, c.width}, 3);
  target::sparse_attention(on(m), steps.batch, a);
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
  EXPECT_TRUE(arena.padding_untouched());
}

TEST(SparseAttention, WindowEntriesAndSink) {
  for (auto m : machines()) {
    check_sparse({DType::kF32, 3, 48, 16, 0, 1, 0}, m);
    check_sparse({DType::kF32, 9, 33, 16, 4, 16, 0}, m);
    check_sparse({DType::kBF16, 8, 64, 11, 4, 64, 12}, m);
    check_sparse({DType::kBF16, 2, 512, 16, 32, 1, 0}, m);
  }
}

// A pool whose second page lies 5 GiB behind its first: only the touched pages take memory.
TEST(MlaAttention, PoolsBeyondFourGiB) {
  int64_t bytes = (int64_t{5} << 30) + (1 << 20), width = 16, page_size = 16;
  SparseMemory memory(bytes);
  Arena arena;
  Steps steps({{1, 20}}, static_cast<int>(page_size), 1);
  steps.pages = {0, 1};
  MlaAttention a;
  a.table = steps.table;
  a.table.pages = on_device(steps.pages.data());
  a.q = arena.normal(DType::kF32, {1, 1, width});
  a.entries = Tensor(memory.data(), DType::kF32, {2, page_size, width});
  a.entries.stride[0] = (int64_t{5} << 30) / 4;
  a.out = arena.poison(DType::kF32, {1, 1, width});
  std::vector<Doubles> keys;
  for (int64_t j = 0; j <= 20; ++j) {
    for (int64_t d = 0; d < width; ++d)
      set(a.entries, std::sin(static_cast<double>(j * width + d)), j / 16, j % 16, d);
    keys.push_back(row_of(a.entries, j / 16, j % 16));
  }
  Machine m;
  target::mla_attention(on(m), steps.batch, a);
  expect_attended(a.out, 0, 0, attend(row_of(a.q, 0, 0), keys, a.scale, -INFINITY, width), "far");
}

// Neither the other rows nor the order of threads nor the grid change a bit.
TEST(MlaAttention, ARowDependsOnItselfAlone) {
  Arena arena;
  Steps steps({{1, 30}, {1, 41}, {2, 3}}, 16, 2), alone({{1, 41}}, 16, 2);
  MlaAttention a;
  a.q = arena.normal(DType::kBF16, {4, 11, 40});
  a.entries = arena.normal(DType::kBF16, {steps.page_count, 16, 40});
  a.table = steps.table;
  a.out = arena.poison(DType::kBF16, {4, 11, 40});
  Machine in_order{32, 0}, shuffled{32, 8, 1};
  target::mla_attention(on(in_order), steps.batch, a);
  MlaAttention one = a;
  one.q = a.q.slice(0, 1, 2);
  one.out = arena.poison(DType::kBF16, {1, 11, 40});
  one.table.pages = steps.table.pages + steps.table.stride;
  target::mla_attention(on(shuffled), alone.batch, one);
  expect_same(one.out, a.out.slice(0, 1, 2), "alone");
}

}  // namespace
}  // namespace hadal
