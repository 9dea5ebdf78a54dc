// The KV compressor against double precision: both kinds of grouping, groups that began
// in an earlier step, each quantisation after it, permuted pages.
#include <map>

#include "gpu/batches.h"
#include "gpu/reference.h"

namespace hadal {
namespace {

using namespace reference;

struct Group {
  Arena arena;
  Steps steps;
  Compress c;
  Tensor history;  // [sequences, positions, width]: what every position contributed
  int64_t dc;

  Group(DType type, int ratio, bool overlap, int64_t dc)
      : steps({{9, 0}, {1, 2 * ratio - 1}, {5, 2 * ratio - 2}, {2, 3 * ratio}}, 2, 3), dc(dc) {
    int64_t width = (overlap ? 4 : 2) * dc, capacity = 2 * ratio + 8;
    int64_t longest = 3 * ratio + 20;
    int64_t pad = dc % 128 == 0 ? 4 : 1;  // rows of whole vectors, or not
    history = arena.normal(DType::kF32, {steps.batch.sequences, longest, width}, 0,
                           [](int64_t i) { return i + 1.0; });
    c.ratio = ratio, c.overlap = overlap;
    c.step_ug = arena.poison(DType::kF32, {steps.batch.rows, width}, pad);
    c.ring_ug = arena.poison(DType::kF32, {steps.batch.sequences + 1, capacity, width}, pad);
    for (int64_t s = 0; s < steps.batch.sequences; ++s)
      for (int64_t p = std::max<int64_t>(0, steps.start[s] - capacity); p < steps.start[s]; ++p)
        for (int64_t i = 0; i < width; ++i)
          set(c.ring_ug, get(history, s, p, i), steps.slot[s], p % capacity, i);
    for (int64_t t = 0; t < steps.batch.rows; ++t)
      for (int64_t i = 0; i < width; ++i)
        set(c.step_ug, get(history, steps.sequence[t], steps.positions[t], i), t, i);
    c.norm = arena.normal(DType::kBF16, {dc});
    c.freqs = arena.poison(DType::kF32, {dc / 8});
    for (int64_t i = 0; i < dc / 8; ++i) set(c.freqs, std::pow(1000.0, -8.0 * i / dc), i);
    c.table = steps.table;
    c.entries = arena.poison(type, {steps.page_count, 2, dc}, 3);
  }

  // Entry j of sequence s with `round` after each stage that the contract rounds.
  template <class Round>
  Doubles entry(int64_t s, int64_t j, Round&& round) const {
    Doubles e(dc);
    int64_t gate = (c.overlap ? 2 : 1) * dc, half = c.freqs.shape[0];
    double squares = 0;
    for (int64_t i = 0; i < dc; ++i) {
      double sum = 0, total = 0;
      auto add = [&](int64_t p, int64_t offset) {
        double w = std::exp(get(history, s, p, gate + offset + i));
        total += w;
        sum += w * get(history, s, p, offset + i);
      };
      for (int64_t n = 0; n < c.ratio; ++n) {
        if (c.overlap && j > 0) add((j - 1) * c.ratio + n, 0);
        add(j * c.ratio + n, c.overlap ? dc : 0);
      }
      e[i] = round(sum / total);
      squares += e[i] * e[i];
    }
    double factor = 1 / std::sqrt(squares / static_cast<double>(dc) + c.eps);
    for (int64_t i = 0; i < dc; ++i) e[i] = round(e[i] * factor * get(c.norm, i));
    for (int64_t i = 0; i < half; ++i) {
      float angle = static_cast<float>(j * c.ratio) * static_cast<float>(get(c.freqs, i));
      double *a = &e[dc - 2 * half + 2 * i], x = a[0], y = a[1];
      a[0] = round(x * std::cos(double{angle}) - y * std::sin(double{angle}));
      a[1] = round(x * std::sin(double{angle}) + y * std::cos(double{angle}));
    }
    return e;
  }
};

class CompressTest : public testing::TestWithParam<std::tuple<DType, int, bool, int64_t>> {};

TEST_P(CompressTest, EntriesMatchDouble) {
  auto [type, ratio, overlap, dc] = GetParam();
  for (auto m : machines()) {
    Group u(type, ratio, overlap, dc);
    target::compress(on(m), u.steps.batch, u.c);
    bool bf16 = type == DType::kBF16;
    auto round = [&](double v) { return bf16 ? round_bf16(static_cast<float>(v)) : v; };
    Doubles want(u.c.entries.size(), NAN);  // what no group finishes stays unwritten
    int finished = 0;
    for (int32_t t = 0; t < u.steps.batch.rows; ++t) {
      int64_t s = u.steps.sequence[t], p = u.steps.positions[t];
      if ((p + 1) % ratio != 0) continue;
      Doubles e = u.entry(s, p / ratio, round);
      std::copy(e.begin(), e.end(), want.begin() + u.steps.entry_row(s, p / ratio) * dc);
      ++finished;
    }
    ASSERT_GE(finished, 2);
    // Three roundings to bf16, each of which may fall to the other side.
    expect_close(u.c.entries, want, bf16 ? 0x1p-7 : 2e-5, bf16 ? 0x1p-7 : 2e-5, describe(m));
    EXPECT_TRUE(u.arena.padding_untouched());
  }
}

TEST_P(CompressTest, QuantisationIsTheRoundTripOfTheEntry) {
  auto [type, ratio, overlap, dc] = GetParam();
  for (auto m : machines()) {
    Group u(type, ratio, overlap, dc);
    target::compress(on(m), u.steps.batch, u.c);
    Tensor plain = u.c.entries;
    for (auto quant : {Compress::Quant::kFp8, Compress::Quant::kHadamardFp4}) {
      // The quantisers have tests of their own (quant_test.cpp).
      Tensor want = u.arena.copy(plain);
      u.c.entries = u.arena.copy(plain);
      u.c.quant = quant;
      for (int64_t page = 0; page < u.steps.page_count; ++page)
        for (int64_t i = 0; i < 2; ++i) {
          Tensor row = want.slice(0, page, page + 1).slice(1, i, i + 1);
          row = Tensor(row.data, row.dtype, {1, dc});
          if (std::isnan(get(row, 0))) continue;
          if (quant == Compress::Quant::kFp8) {
            target::qdq_fp8(on(m), row.slice(1, 0, dc - dc / 4), 64);
          } else {
            target::hadamard(on(m), row);
            target::qdq_fp4(on(m), row);
          }
        }
      target::compress(on(m), u.steps.batch, u.c);
      expect_same(u.c.entries, want, describe(m));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, CompressTest,
                         testing::Values(std::tuple{DType::kF32, 4, true, 64},
                                         std::tuple{DType::kF32, 8, false, 256},
                                         std::tuple{DType::kBF16, 4, true, 128},
                                         std::tuple{DType::kBF16, 8, false, 64},
                                         std::tuple{DType::kBF16, 4, true, 512},
                                         std::tuple{DType::kBF16, 128, false, 128},
                                         std::tuple{DType::kF32, 64, false, 32},
                                         std::tuple{DType::kF32, 4, true, 4096}));

TEST(Compress, RowsTakeThePositionsBias) {
  for (auto m : machines()) {
    Arena arena;
    Steps steps({{5, 2}, {1, 7}}, 2, 1);
    Tensor u = arena.normal(DType::kF32, {6, 37}, 1), g = arena.normal(DType::kF32, {6, 37});
    Tensor ape = arena.normal(DType::kBF16, {4, 37}, 2), ug = arena.poison(DType::kF32, {6, 74}, 1);
    target::compress_rows(on(m), steps.batch, u, g, ape, ug);
    Doubles want;
    Arena::each(ug, [&](int64_t t, int64_t c, int64_t) {
      want.push_back(c < 37 ? get(u, t, c)
                            : get(g, t, c - 37) + get(ape, steps.positions[t] % 4, c - 37));
    });
    expect_close(ug, want, 1e-7, 1e-7, describe(m));
    EXPECT_TRUE(arena.padding_untouched());
  }
}

}  // namespace
}  // namespace hadal
