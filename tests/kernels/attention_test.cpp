// Both attentions, every candidate, against a double-precision softmax over logical histories:
// permuted pages, rings that wrap, mixed sequences, selections with -1, NaN wherever a row may not
// look; chunks against single tokens and thread counts bit for bit.
#include "kernels/cpu/amx_attention.h"
#include "kernels/cpu/avx2_attention.h"
#include "kernels/cpu/avx512_attention.h"
#include "kernels/cpu/ref_attn_mla.h"
#include "kernels/cpu/ref_attn_sparse.h"
#include "kernels/sequences.h"

namespace hadal::test {
namespace {

struct SparseCandidate {
  const char* name;
  SparseAttentionFn* launch;
  bool Device::*needs;  // null: runs anywhere
};
struct MlaCandidate {
  const char* name;
  MlaAttentionFn* launch;
  bool Device::*needs;
};

const SparseCandidate kSparse[] = {
    {"ref", ref_sparse_attention, nullptr},
    {"avx2", avx2_sparse_attention, &Device::avx2},
    {"avx512", avx512_sparse_attention, &Device::avx512},
    {"amx", amx_sparse_attention, &Device::amx},
};
const MlaCandidate kMla[] = {
    {"ref", ref_mla_attention, nullptr},
    {"avx2", avx2_mla_attention, &Device::avx2},
    {"avx512", avx512_mla_attention, &Device::avx512},
    {"amx", amx_mla_attention, &Device::amx},
};

template <class C>
bool runs_here(const C& c) {
  return !c.needs || this_device().*c.needs;
}

// One head over keys: the expected output and the weight of what went into it.
struct Expected {
  std::vector<double> y, mass;
  double products = 0;  // most that the absolute products of one score sum up to
};

// q: the d values of one head; keys: rows of d values of which the first dv are the value.
Expected attend(const double* q, const std::vector<const double*>& keys, int64_t d, int64_t dv,
                double scale, double sink) {
  std::vector<double> s;
  double top = sink, den = 0, products = 0;
  for (const double* key : keys) {
    double dot = 0, size = 0;
    for (int64_t i = 0; i < d; ++i) {
      dot += q[i] * key[i];
      size += std::abs(q[i] * key[i]);
    }
    s.push_back(dot * scale);
    products = std::max(products, size * scale);
    top = std::max(top, s.back());
  }
  for (double& v : s) den += v = std::exp(v - top);
  den += std::exp(sink - top);
  Expected e{std::vector<double>(dv), std::vector<double>(dv), products};
  for (size_t k = 0; k < keys.size(); ++k)
    for (int64_t i = 0; i < dv; ++i) {
      double v = s[k] / den * keys[k][i];
      e.y[i] += v;
      e.mass[i] += std::abs(v);
    }
  return e;
}

using Doubles = std::vector<std::vector<double>>;  // of each sequence, all its rows

Doubles doubles_of(const History& h) {
  Doubles d;
  for (const Array& a : h) d.push_back(a.doubles());
  return d;
}

// F32: 1e-6 of the mass and what one unit roundoff in the sums of a score makes of it. BF16: each
// probability and the output are rounded once, so no element is off by more than a unit roundoff of
// the mass and one of itself, and no head by more than two in norm (0.8%). A key missing from or
// strange to 640 would add 4%.
void expect_head(const Array& out, int64_t head_row, const Expected& e, const std::string& what) {
  bool bf16 = out.view.dtype == DType::kBF16;
  int64_t dv = static_cast<int64_t>(e.y.size());
  double error = 0, norm = 0;
  for (int64_t i = 0; i < dv; ++i) {
    double got = out.at(head_row * dv + i), off = std::abs(got - e.y[i]);
    double bound = bf16 ? 0x1p-8 * (1.01 * e.mass[i] + std::abs(e.y[i]))
                        : (1e-6 + 0x1p-24 * e.products) * e.mass[i];
    ASSERT_TRUE(off <= bound + 1e-30)
        << what << " element " << i << ": " << got << ", expected " << e.y[i];
    error += off * off;
    norm += e.y[i] * e.y[i];
  }
  if (bf16) {
    ASSERT_LE(error, 0x1p-14 * norm) << what;
  }
}

// Everything that a call of sparse_attention needs, with the logical values beside it.
struct SparseCase {
  SparseCase(std::vector<int32_t> cached, std::vector<int32_t> fresh, DType t, int64_t heads,
             int64_t d, int window, int capacity, int ratio, int page_size, int top)
      : rows(std::move(cached), std::move(fresh)),
        window(window),
        ratio(ratio),
        kv(random_history(rows, t, d, 1)),
        q(t, {rows.rows(), heads, d}),
        step(step_part(rows, kv)),
        ring(ring_part(rows, kv, capacity, window - 1)),
        sink(DType::kF32, {heads}),
        selected(DType::kI32, {rows.rows(), std::max(1, top)}),
        out(t, {rows.rows(), heads, d}),
        pages(rows.sequences(), ratio ? most_entries() : 1, page_size) {
    q.fill_normal(3);
    sink.fill_normal(2);
    if (ratio) {
      compressed = random_history(rows, t, d, 1);
      pool.emplace_back(
          pool_part(pages, compressed, [&](size_t s) { return rows.length(s) / ratio; }));
    }
    if (top) select(top);
  }
  int64_t most_entries() const {
    int64_t n = 1;
    for (int64_t s = 0; s < rows.sequences(); ++s) n = std::max(n, rows.length(s) / ratio);
    return n;
  }
  // Random visible entries in ascending order, then -1; every fifth row has none.
  void select(int64_t top) {
    for (int64_t t = 0; t < rows.rows(); ++t) {
      std::vector<int32_t> all((rows.positions[t] + 1) / ratio);
      std::iota(all.begin(), all.end(), 0);
      std::shuffle(all.begin(), all.end(), generator());
      all.resize(t % 5 == 4 ? 0 : std::min<size_t>(all.size(), top));
      std::sort(all.begin(), all.end());
      for (int64_t i = 0; i < top; ++i)
        selected.set(t * top + i, i < static_cast<int64_t>(all.size()) ? all[i] : -1);
    }
    selecting = true;
  }
  SparseAttention call() const {
    SparseAttention a;
    a.q = q.view;
    a.step_kv = step.view;
    a.ring = ring.view;
    a.window = window;
    a.ratio = ratio;
    a.table = pages.table;
    if (!pool.empty()) a.entries = pool[0].view;
    if (selecting) a.selected = selected.view;
    a.sink = sink.view;
    a.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(q.view.shape[2])));
    a.out = out.view;
    return a;
  }
  std::vector<const double*> keys(int64_t t, const Doubles& window_rows,
                                  const Doubles& entry_rows) const {
    std::vector<const double*> k;
    int64_t s = rows.sequence[t], p = rows.positions[t], d = q.view.shape[2];
    for (int64_t i = std::max<int64_t>(0, p - window + 1); i <= p; ++i)
      k.push_back(&window_rows[s][i * d]);
    int64_t top = selected.view.shape[1], visible = ratio ? (p + 1) / ratio : 0;
    for (int64_t i = 0; i < (selecting ? top : visible); ++i) {
      int64_t j = selecting ? static_cast<int64_t>(selected.at(t * top + i)) : i;
      if (j >= 0) k.push_back(&entry_rows[s][j * d]);
    }
    return k;
  }
  void expect_all(const std::string& what) const {
    int64_t heads = q.view.shape[1], d = q.view.shape[2];
    Doubles window_rows = doubles_of(kv), entry_rows = doubles_of(compressed);
    std::vector<double> queries = q.doubles();
    for (int64_t t = 0; t < rows.rows(); ++t) {
      auto list = keys(t, window_rows, entry_rows);
      for (int64_t h = 0; h < heads; ++h) {
        expect_head(out, t * heads + h,
                    attend(&queries[(t * heads + h) * d], list, d, d, call().scale, sink.at(h)),
                    what + " row " + std::to_string(t) + " head " + std::to_string(h));
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }

  StepRows rows;
  int window, ratio;
  History kv, compressed;
  Array q, step, ring, sink, selected, out;
  Pages pages;
  std::vector<Array> pool;
  bool selecting = false;
};

class SparseAttentionOf : public ::testing::TestWithParam<std::tuple<SparseCandidate, DType>> {
 protected:
  void SetUp() override {
    if (!runs_here(std::get<0>(GetParam())))
      GTEST_SKIP() << std::get<0>(GetParam()).name << " needs a CPU that this is not";
  }
  SparseAttentionFn* launch() const { return std::get<0>(GetParam()).launch; }
  DType type() const { return std::get<1>(GetParam()); }
  Rig rig;
};

// Starts and lengths around the window, the ring's wrap and the groups' ends.
TEST_P(SparseAttentionOf, AgreesWithDoublePrecision) {
  struct Shape {
    int64_t heads, d;
    int window, capacity, ratio, page, top;
  };
  const Shape shapes[] = {
      {4, 128, 8, 8, 0, 64, 0},  {4, 128, 8, 11, 4, 1, 0},      {3, 64, 8, 11, 4, 16, 5},
      {16, 64, 8, 16, 4, 64, 6}, {1, 32, 5, 9, 16, 16, 0},      {9, 96, 128, 136, 4, 64, 7},
      {5, 40, 16, 16, 4, 16, 3}, {8, 512, 128, 128, 4, 64, 33}, {2, 50, 7, 7, 2, 16, 40}};
  for (const Shape& s : shapes) {
    SparseCase c({0, 1, 7, 8, 37, 200, 0}, {5, 1, 2, 1, 9, 3, 17}, type(), s.heads, s.d, s.window,
                 s.capacity, s.ratio, s.page, s.top);
    launch()(rig.ctx, c.rows.batch, c.call());
    c.expect_all("heads " + std::to_string(s.heads) + " d " + std::to_string(s.d));
    if (HasFatalFailure()) return;
  }
}

// Enough keys that candidates which walk them in blocks and parts cross every border.
TEST_P(SparseAttentionOf, AgreesOverManyEntries) {
  SparseCase c({3000, 9000}, {2, 1}, type(), 8, 64, 128, 130, 4, 64, 0);
  launch()(rig.ctx, c.rows.batch, c.call());
  c.expect_all("many");
}

TEST_P(SparseAttentionOf, SurvivesASinkFarAboveAndBelow) {
  SparseCase c({20}, {2}, type(), 4, 64, 8, 8, 0, 64, 0);
  const double sinks[] = {80, -80, 1000, -1000};
  for (int h = 0; h < 4; ++h) c.sink.set(h, sinks[h]);
  launch()(rig.ctx, c.rows.batch, c.call());
  for (int64_t t = 0; t < 2; ++t)
    for (int64_t h = 0; h < 4; ++h)
      for (int64_t i = 0; i < 64; ++i) {
        double got = c.out.at((t * 4 + h) * 64 + i);
        ASSERT_TRUE(std::isfinite(got));
        ASSERT_TRUE(h != 2 || std::abs(got) <= 1e-30);
      }
  c.sink.set(2, 60);
  launch()(rig.ctx, c.rows.batch, c.call());
  c.expect_all("sinks");
}

// The same tokens in one chunk, in three, and one at a time; and with other thread counts.
TEST_P(SparseAttentionOf, ChunksThreadsAndNeighboursDoNotMatter) {
  const int64_t heads = 9, d = 128, n = 300;
  SparseCase whole({0, 50}, {n, 4}, type(), heads, d, 16, 24, 4, 16, 0);
  launch()(rig.ctx, whole.rows.batch, whole.call());
  for (int threads : {1, 3}) {
    Rig other(threads);
    SparseAttention a = whole.call();
    Array again(type(), {whole.rows.rows(), heads, d});
    a.out = again.view;
    launch()(other.ctx, whole.rows.batch, a);
    EXPECT_TRUE(again.same_bits(whole.out)) << threads << " threads";
  }
  for (int32_t chunk : {1, 7, 100}) {
    Array out(type(), {n, heads, d});
    for (int32_t p = 0; p < n; p += chunk) {
      int32_t fresh = std::min<int32_t>(chunk, n - p);
      StepRows rows({p}, {fresh});
      History kv;
      kv.push_back(whole.kv[0]);
      Array step = step_part(rows, kv), ring = ring_part(rows, kv, 24, 15);
      SparseAttention a = whole.call();
      a.q = whole.q.view.slice(0, p, p + fresh);
      a.step_kv = step.view;
      a.ring = ring.view;
      a.out = out.view.slice(0, p, p + fresh);
      launch()(rig.ctx, rows.batch, a);
    }
    EXPECT_EQ(std::memcmp(out.view.data, whole.out.view.data, out.view.bytes()), 0)
        << "chunks of " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(Candidates, SparseAttentionOf,
                         ::testing::Combine(::testing::ValuesIn(kSparse),
                                            ::testing::Values(DType::kF32, DType::kBF16)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) +
                                  dtype_name(std::get<1>(info.param));
                         });

struct MlaCase {
  MlaCase(std::vector<int32_t> cached, std::vector<int32_t> fresh, DType t, int64_t heads,
          int64_t l, int64_t r, int page_size, int64_t top)
      : rows(std::move(cached), std::move(fresh)),
        kv(random_history(rows, t, l + r, 1)),
        q(t, {rows.rows(), heads, l + r}),
        out(t, {rows.rows(), heads, l}),
        selected(DType::kI32, {rows.rows(), std::max<int64_t>(1, top)}),
        pages(rows.sequences(), longest(), page_size),
        pool(pool_part(pages, kv, [&](size_t s) { return rows.length(s); })) {
    q.fill_normal(2);
    if (top) select(top);
  }
  int64_t longest() const {
    int64_t n = 1;
    for (int64_t s = 0; s < rows.sequences(); ++s) n = std::max(n, rows.length(s));
    return n;
  }
  void select(int64_t top) {
    for (int64_t t = 0; t < rows.rows(); ++t) {
      std::vector<int32_t> all(rows.positions[t] + 1);
      std::iota(all.begin(), all.end(), 0);
      std::shuffle(all.begin(), all.end(), generator());
      all.resize(std::min<size_t>(all.size(), top));
      for (int64_t i = 0; i < top; ++i)
        selected.set(t * top + i, i < static_cast<int64_t>(all.size()) ? all[i] : -1);
    }
    selecting = true;
  }
  MlaAttention call() const {
    MlaAttention a;
    a.q = q.view;
    a.entries = pool.view;
    a.table = pages.table;
    if (selecting) a.selected = selected.view;
    a.scale = 0.1352337788608801f;
    a.out = out.view;
    return a;
  }
  void expect_all(const std::string& what) const {
    int64_t heads = q.view.shape[1], d = q.view.shape[2], l = out.view.shape[2];
    int64_t top = selected.view.shape[1];
    Doubles kv_rows = doubles_of(kv);
    std::vector<double> queries = q.doubles();
    for (int64_t t = 0; t < rows.rows(); ++t) {
      std::vector<const double*> keys;
      for (int64_t i = 0; i < (selecting ? top : rows.positions[t] + 1); ++i) {
        int64_t j = selecting ? static_cast<int64_t>(selected.at(t * top + i)) : i;
        if (j >= 0) keys.push_back(&kv_rows[rows.sequence[t]][j * d]);
      }
      for (int64_t h = 0; h < heads; ++h) {
        expect_head(out, t * heads + h,
                    attend(&queries[(t * heads + h) * d], keys, d, l, call().scale,
                           -std::numeric_limits<double>::infinity()),
                    what + " row " + std::to_string(t) + " head " + std::to_string(h));
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
  StepRows rows;
  History kv;
  Array q, out, selected;
  Pages pages;
  Array pool;
  bool selecting = false;
};

class MlaAttentionOf : public ::testing::TestWithParam<std::tuple<MlaCandidate, DType>> {
 protected:
  void SetUp() override {
    if (!runs_here(std::get<0>(GetParam())))
      GTEST_SKIP() << std::get<0>(GetParam()).name << " needs a CPU that this is not";
  }
  MlaAttentionFn* launch() const { return std::get<0>(GetParam()).launch; }
  DType type() const { return std::get<1>(GetParam()); }
  Rig rig;
};

TEST_P(MlaAttentionOf, AgreesWithDoublePrecision) {
  struct Shape {
    int64_t heads, l, r;
    int page;
    int64_t top;
  };
  const Shape shapes[] = {{4, 64, 16, 64, 0},   {1, 32, 8, 1, 0},     {12, 48, 16, 16, 9},
                          {16, 64, 64, 64, 32}, {8, 512, 64, 64, 21}, {3, 50, 6, 16, 0}};
  for (const Shape& s : shapes) {
    MlaCase c({0, 1, 15, 16, 63, 200, 0}, {4, 1, 2, 1, 3, 2, 21}, type(), s.heads, s.l, s.r, s.page,
              s.top);
    launch()(rig.ctx, c.rows.batch, c.call());
    c.expect_all("heads " + std::to_string(s.heads) + " l " + std::to_string(s.l));
    if (HasFatalFailure()) return;
  }
}

TEST_P(MlaAttentionOf, AgreesOverALongContext) {
  MlaCase c({3200, 1199}, {2, 1}, type(), 5, 64, 16, 64, 0);
  launch()(rig.ctx, c.rows.batch, c.call());
  c.expect_all("long");
}

TEST_P(MlaAttentionOf, ARowThatSelectsNothingIsZero) {
  MlaCase c({10}, {1}, type(), 4, 64, 16, 16, 8);
  c.selected.fill([] { return -1.0; });
  launch()(rig.ctx, c.rows.batch, c.call());
  for (int64_t i = 0; i < c.out.size(); ++i) ASSERT_EQ(c.out.at(i), 0);
}

TEST_P(MlaAttentionOf, SelectingAllInOrderEqualsSelectingNone) {
  MlaCase c({30, 2}, {3, 1}, type(), 4, 64, 16, 16, 0);
  launch()(rig.ctx, c.rows.batch, c.call());
  Array selected(DType::kI32, {4, 40}), out(type(), {4, 4, 64});
  for (int64_t t = 0; t < 4; ++t)
    for (int64_t i = 0; i < 40; ++i)
      selected.set(t * 40 + i, i <= c.rows.positions[t] ? static_cast<double>(i) : -1.0);
  MlaAttention a = c.call();
  a.selected = selected.view;
  a.out = out.view;
  launch()(rig.ctx, c.rows.batch, a);
  EXPECT_TRUE(out.same_bits(c.out));
}

TEST_P(MlaAttentionOf, RowsDoNotDependOnTheStepOrTheThreads) {
  MlaCase c({2500, 0, 40}, {6, 30, 1}, type(), 9, 64, 16, 16, 0);
  launch()(rig.ctx, c.rows.batch, c.call());
  for (int threads : {1, 3}) {
    Rig other(threads);
    Array out(type(), {c.rows.rows(), 9, 64});
    for (int64_t t = 0; t < c.rows.rows(); ++t) {
      int64_t s = c.rows.sequence[t];
      StepRows one({c.rows.positions[t]}, {1});
      MlaAttention a = c.call();
      a.q = c.q.view.slice(0, t, t + 1);
      a.out = out.view.slice(0, t, t + 1);
      a.table.pages += s * a.table.stride;
      launch()(other.ctx, one.batch, a);
    }
    EXPECT_TRUE(out.same_bits(c.out)) << threads << " threads";
  }
}

INSTANTIATE_TEST_SUITE_P(Candidates, MlaAttentionOf,
                         ::testing::Combine(::testing::ValuesIn(kMla),
                                            ::testing::Values(DType::kF32, DType::kBF16)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) +
                                  dtype_name(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace hadal::test
