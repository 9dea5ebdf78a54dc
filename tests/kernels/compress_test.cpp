// The KV compressor against double precision: both forms, all quantisers, groups that straddle
// steps and rings, and the same entries however the tokens were cut into steps.
#include "kernels/compress.h"

#include <set>

#include "kernels/copy.h"
#include "kernels/sequences.h"

namespace hadal::test {
namespace {

struct CompressCase {
  CompressCase(int ratio, bool overlap, int64_t dc, int64_t r, DType type)
      : ratio(ratio),
        overlap(overlap),
        type(type),
        dc(dc),
        norm(DType::kBF16, {dc}),
        freqs(DType::kF32, {r / 2}) {
    norm.fill([] { return 1 + normal(0.3); });
    for (int64_t i = 0; i < r / 2; ++i)
      freqs.set(i, std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(r)));
  }
  int64_t width() const { return (overlap ? 4 : 2) * dc; }
  History history(const StepRows& rows) const {
    return random_history(rows, DType::kF32, width(), 1.5);
  }
  Compress call(const Array& step, const Array& ring, const Pages& pages, const Array& pool) const {
    Compress c;
    c.ratio = ratio;
    c.overlap = overlap;
    c.step_ug = step.view;
    c.ring_ug = ring.view;
    c.norm = norm.view;
    c.freqs = freqs.view;
    c.quant = quant;
    c.entries = pool.view;
    c.table = pages.table;
    return c;
  }
  // Entry j of a sequence before quantisation (spec V4 4.2), unrounded.
  std::vector<double> entry_of(const Array& ug, int64_t j) const {
    std::vector<double> e(dc);
    int64_t half = width() / 2;
    for (int64_t ch = 0; ch < dc; ++ch) {
      std::vector<std::pair<double, double>> ug_pairs;
      for (int64_t p = (j - (overlap ? 1 : 0)) * ratio; p < (j + 1) * ratio; ++p) {
        if (p < 0) continue;
        int64_t offset = overlap && p >= j * ratio ? dc : 0;
        ug_pairs.push_back(
            {ug.at(p * 2 * half + offset + ch), ug.at(p * 2 * half + half + offset + ch)});
      }
      double top = -1e300, den = 0;
      for (auto [u, g] : ug_pairs) top = std::max(top, g);
      for (auto [u, g] : ug_pairs) {
        den += std::exp(g - top);
        e[ch] += std::exp(g - top) * u;
      }
      e[ch] /= den;
    }
    double squares = 0;
    for (double v : e) squares += v * v;
    for (int64_t i = 0; i < dc; ++i) e[i] *= norm.at(i) / std::sqrt(squares / dc + 1e-6);
    int64_t half_r = freqs.size(), plain = dc - 2 * half_r;
    for (int64_t i = 0; i < half_r; ++i) {
      double a =
          static_cast<double>(static_cast<float>(j * ratio) * static_cast<float>(freqs.at(i)));
      double x = e[plain + 2 * i], y = e[plain + 2 * i + 1];
      e[plain + 2 * i] = x * std::cos(a) - y * std::sin(a);
      e[plain + 2 * i + 1] = x * std::sin(a) + y * std::cos(a);
    }
    return e;
  }
  int ratio;
  bool overlap;
  DType type;
  int64_t dc;
  Array norm, freqs;
  Compress::Quant quant = Compress::Quant::kNone;
};

// Overlap, ratio, dtype of the entries.
const std::tuple<bool, int, DType> kForms[] = {
    {true, 4, DType::kF32},     {true, 4, DType::kBF16}, {false, 128, DType::kF32},
    {false, 128, DType::kBF16}, {false, 8, DType::kF32}, {true, 2, DType::kF32}};

// Rows of mixed sequences; the ring holds exactly the positions that a group may still need.
void check_entries(Rig& rig, const CompressCase& c) {
  const int64_t dc = c.dc;
  StepRows rows({0, 1, 3, 4, 130, 250, 7}, {9, 3, 1, 4, 40, 6, 280});
  History h = c.history(rows);
  int64_t kept = c.ratio * (c.overlap ? 2 : 1) - 1, capacity = kept + 2;
  Array step = step_part(rows, h), ring = ring_part(rows, h, capacity, kept);
  Pages pages(rows.sequences(), 290, 16);
  Array pool(c.type, {pages.count, 16, dc});
  compress(rig.ctx, rows.batch, c.call(step, ring, pages, pool));
  std::set<int64_t> written;
  for (int64_t s = 0; s < rows.sequences(); ++s)
    for (int64_t j = rows.start[s] / c.ratio; j < rows.length(s) / c.ratio; ++j) {
      std::vector<double> want = c.entry_of(h[s], j);
      written.insert(pages.row(s, j));
      for (int64_t i = 0; i < dc; ++i) {
        // bf16: the pool and the norm round in turn, the rotation once more from two such values.
        double bound = 4e-6, inputs = std::abs(want[i]);
        if (i >= dc - 32) inputs = std::sqrt(2.0) * std::hypot(want[i], want[i ^ 1]);
        if (c.type == DType::kBF16) bound = 0x1p-8 * (2.05 * inputs + std::abs(want[i])) + 1e-5;
        ASSERT_NEAR(pool.at(pages.row(s, j) * dc + i), want[i], bound)
            << "sequence " << s << " entry " << j << " channel " << i;
      }
    }
  for (int64_t row = 0; row < pages.count * 16; ++row)
    ASSERT_TRUE(written.count(row) || std::isnan(pool.at(row * dc))) << "strange entry written";
}

void check_cuts(Rig& rig, CompressCase c) {
  c.quant = Compress::Quant::kFp8;
  const int32_t n = 300;
  StepRows whole({0}, {n});
  History h = c.history(whole);
  Pages pages(1, n, 16);
  int64_t capacity = 2 * c.ratio + 3;
  auto run = [&](int32_t chunk, int threads) {
    Rig other(threads, rig.device);
    Array pool(c.type, {pages.count, 16, 64});
    Array ring(DType::kF32, {3, capacity, c.width()});
    for (int32_t p = 0; p < n; p += chunk) {
      StepRows rows({p}, {std::min(chunk, n - p)});
      Array step = step_part(rows, h);
      compress(other.ctx, rows.batch, c.call(step, ring, pages, pool));
      ring_write(other.ctx, rows.batch, step.view, ring.view);
    }
    return pool;
  };
  Array together = run(n, 2);
  for (int32_t chunk : {1, 3, 64, 129}) EXPECT_TRUE(run(chunk, 1).same_bits(together)) << chunk;
  EXPECT_TRUE(run(n, 3).same_bits(together));
}

TEST_ROWS(Compress, EntriesAgreeWithDoublePrecision) {
  for (auto [overlap, ratio, type] : kForms)
    for (int64_t dc : {64, 128}) {
      check_entries(rig, CompressCase(ratio, overlap, dc, 32, type));
      if (::testing::Test::HasFatalFailure()) return;
    }
}

TEST_ROWS(Compress, EntriesDoNotDependOnTheCutIntoSteps) {
  for (auto [overlap, ratio, type] : kForms)
    check_cuts(rig, CompressCase(ratio, overlap, 64, 16, type));
}

// The quantisers act on the unquantised entry: its values with kNone, put through the same ops.
TEST_ROWS(Compress, QuantisesTheFinishedEntry) {
  for (DType type : {DType::kF32, DType::kBF16})
    for (auto quant : {Compress::Quant::kFp8, Compress::Quant::kHadamardFp4}) {
      CompressCase c(4, true, 128, 64, type);
      StepRows rows({0}, {16});
      History h = c.history(rows);
      Array step = step_part(rows, h), ring = ring_part(rows, h, 8, 8);
      Pages pages(1, 4, 1);
      Array plain(type, {pages.count, 1, 128}), pool = plain;
      compress(rig.ctx, rows.batch, c.call(step, ring, pages, plain));
      c.quant = quant;
      compress(rig.ctx, rows.batch, c.call(step, ring, pages, pool));
      for (int64_t j = 0; j < 4; ++j) {
        std::vector<double> v(128);
        for (int64_t i = 0; i < 128; ++i) v[i] = plain.at(pages.row(0, j) * 128 + i);
        if (quant == Compress::Quant::kHadamardFp4) {
          std::vector<double> t(128);
          for (int64_t i = 0; i < 128; ++i)
            for (int64_t k = 0; k < 128; ++k)
              t[i] += v[k] * (__builtin_popcountll(i & k) % 2 ? -1 : 1) / std::sqrt(128.0);
          v = t;
        }
        int64_t block = quant == Compress::Quant::kFp8 ? 64 : 32;
        for (int64_t i = 0; i < 128; ++i) {
          double got = pool.at(pages.row(0, j) * 128 + i), amax = 0;
          if (quant == Compress::Quant::kFp8 && i >= 64) {
            ASSERT_EQ(got, v[i]) << "the rotated part stays";
            continue;
          }
          for (int64_t k = i / block * block; k < i / block * block + block; ++k)
            amax = std::max(amax, std::abs(v[k]));
          double top = quant == Compress::Quant::kFp8 ? 448 : 6;
          double s = std::exp2(std::ceil(std::log2(amax / top)));
          // A grid of step at most 1/16 (e4m3) of the value or 1/4 (e2m1) of the block's top.
          double step_size = quant == Compress::Quant::kFp8
                                 ? std::max(std::abs(v[i]) / 16, s * 0x1p-10)
                                 : std::max(std::abs(v[i]) / 4, s / 4);
          ASSERT_NEAR(got, v[i], step_size * 1.02 + 0x1p-8 * std::abs(v[i]));
          double code = std::abs(got / s);
          if (quant == Compress::Quant::kHadamardFp4) {
            const double grid[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
            ASSERT_NE(std::find(grid, grid + 8, code), grid + 8) << code;
          } else {
            ASSERT_EQ(code, e4m3_to_f32(f32_to_e4m3(static_cast<float>(code))));
          }
        }
      }
    }
}

TEST(CompressRows, AddsThePositionsOwnRow) {
  Rig rig;
  for (DType t : {DType::kF32, DType::kBF16, DType::kF16}) {
    StepRows rows({0, 126}, {5, 4});
    Array u(DType::kF32, {9, 24}), g(DType::kF32, {9, 24}), ape(t, {4, 24}),
        ug(DType::kF32, {9, 48});
    u.fill_normal();
    g.fill_normal();
    ape.fill_normal();
    compress_rows(rig.ctx, rows.batch, u.view, g.view, ape.view, ug.view);
    for (int64_t r = 0; r < 9; ++r)
      for (int64_t i = 0; i < 24; ++i) {
        EXPECT_EQ(ug.at(r * 48 + i), u.at(r * 24 + i));
        EXPECT_NEAR(ug.at(r * 48 + 24 + i),
                    g.at(r * 24 + i) + ape.at(rows.positions[r] % 4 * 24 + i), 3e-7);
      }
  }
}

}  // namespace
}  // namespace hadal::test
