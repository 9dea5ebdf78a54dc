// What the tensor core kernels take for granted, without a GPU: which element of a matrix each
// register holds, the emulated product, which columns meet in it, and where rows lie in shared
// memory. Expected positions are copied from the tables of the PTX ISA.
#include <set>

#include "gpu/reference.h"
#include "kernels/cuda/mma_fragments.cu.h"

namespace hadal {
namespace {

using namespace fiber;

// PTX ISA, mma.m16n8k16: elements a0..a7 of lanes 0, 5 and 31, b0..b3, c0..c3.
TEST(MmaMaps, ArePtxs) {
  const int lanes[] = {0, 5, 31};
  const At a[3][8] = {{{0, 0}, {0, 1}, {8, 0}, {8, 1}, {0, 8}, {0, 9}, {8, 8}, {8, 9}},
                      {{1, 2}, {1, 3}, {9, 2}, {9, 3}, {1, 10}, {1, 11}, {9, 10}, {9, 11}},
                      {{7, 6}, {7, 7}, {15, 6}, {15, 7}, {7, 14}, {7, 15}, {15, 14}, {15, 15}}};
  const At b[3][4] = {{{0, 0}, {1, 0}, {8, 0}, {9, 0}},
                      {{2, 1}, {3, 1}, {10, 1}, {11, 1}},
                      {{6, 7}, {7, 7}, {14, 7}, {15, 7}}};
  const At c[3][4] = {{{0, 0}, {0, 1}, {8, 0}, {8, 1}},
                      {{1, 2}, {1, 3}, {9, 2}, {9, 3}},
                      {{7, 6}, {7, 7}, {15, 6}, {15, 7}}};
  for (int i = 0; i < 3; ++i) {
    for (int e = 0; e < 8; ++e) EXPECT_EQ(mma_a(lanes[i], e / 2, e % 2), a[i][e]);
    for (int e = 0; e < 4; ++e) EXPECT_EQ(mma_b(lanes[i], e / 2, e % 2), b[i][e]);
    for (int e = 0; e < 4; ++e) EXPECT_EQ(mma_c(lanes[i], e), c[i][e]);
  }
}

TEST(MmaMaps, HoldEachElementOnce) {
  std::set<std::pair<int, int>> a, b, c;
  for (int lane = 0; lane < 32; ++lane) {
    for (int e = 0; e < 8; ++e) {
      At at = mma_a(lane, e / 2, e % 2);
      a.insert({at.row, at.column});
    }
    for (int e = 0; e < 4; ++e) {
      At in = mma_b(lane, e / 2, e % 2), out = mma_c(lane, e);
      b.insert({in.row, in.column});
      c.insert({out.row, out.column});
    }
  }
  EXPECT_EQ(a.size(), 256u);
  EXPECT_EQ(b.size(), 128u);
  EXPECT_EQ(c.size(), 128u);
}

struct Product {
  const float *a, *b;  // [16, 16], [16, 8], of small integers
  float* c;            // [16, 8]
};

template <Half kHalf>
uint32_t half_bits(float small_integer) {
  if (kHalf == Half::kBF16) return f32_to_bf16(small_integer).bits;
  uint32_t f = std::bit_cast<uint32_t>(small_integer);
  return small_integer == 0 ? 0 : (f >> 16 & 0x8000) | (((f >> 13) - (112 << 10)) & 0x7fff);
}

template <Half kHalf>
KL_KERNEL(32)
product_kernel(Product p) {
  uint32_t a[4] = {}, b[2] = {};
  float c[4];
  int lane = fiber::kl::lane();
  for (int e = 0; e < 8; ++e) {
    At at = mma_a(lane, e / 2, e % 2);
    a[e / 2] |= half_bits<kHalf>(p.a[at.row * 16 + at.column]) << 16 * (e % 2);
  }
  for (int e = 0; e < 4; ++e) {
    At at = mma_b(lane, e / 2, e % 2);
    b[e / 2] |= half_bits<kHalf>(p.b[at.row * 8 + at.column]) << 16 * (e % 2);
    at = mma_c(lane, e);
    c[e] = p.c[at.row * 8 + at.column];
  }
  fiber::mma<kHalf>(c, a, b);
  for (int e = 0; e < 4; ++e) {
    At at = mma_c(lane, e);
    p.c[at.row * 8 + at.column] = c[e];
  }
}

TEST(MmaMaps, EmulatedProductIsTheProduct) {
  std::mt19937 random(5);
  std::vector<float> a(256), b(128), c(128), want(128);
  for (float& v : a) v = static_cast<float>(random() % 33) - 16;
  for (float& v : b) v = static_cast<float>(random() % 33) - 16;
  for (float& v : c) v = static_cast<float>(random() % 33);
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 8; ++j) {
      want[i * 8 + j] = c[i * 8 + j];
      for (int k = 0; k < 16; ++k) want[i * 8 + j] += a[i * 16 + k] * b[k * 8 + j];
    }
  for (Half half : {Half::kF16, Half::kBF16}) {
    std::vector<float> got = c;
    Machine machine{32, 3};
    fiber::kl::launch(half == Half::kF16 ? product_kernel<Half::kF16> : product_kernel<Half::kBF16>,
                      {1}, 32, 0, &machine, Product{a.data(), b.data(), got.data()});
    EXPECT_EQ(got, want);
  }
}

template <Half kHalf>
double half_double(uint32_t word, int i) {
  return fiber::half_value<kHalf>(word >> 16 * i & 0xffff);
}

// Column i of a run decodes, on both sides, to the halves that mma_column names.
template <class X, class W>
void check_fragments() {
  constexpr Half kHalf = kMath<X, W>;
  constexpr int kColumns = kRun<W>;
  std::mt19937 random(7);
  uint32_t w[kColumns / W::kPerWord];
  Bits128 x[kRunBytes<X, W> / 16];
  float w_value[kColumns], x_value[kColumns];
  auto finite = [&](int per_word) {  // no NaN codes, no bf16 that f16 lacks
    uint32_t v = random();
    if (per_word == 4) v &= 0xf7f7f7f7u;
    return per_word == 2 ? (v & 0x80ff80ffu) | 0x3f003f00u : v;
  };
  for (int trial = 0; trial < 200; ++trial) {
    for (uint32_t& v : w) v = finite(W::kPerWord);
    for (Bits128& v : x)
      for (uint32_t& word : v.word) word = finite(X::kPerWord);
    for (int i = 0; i < kColumns; i += W::kPerWord) W::decode(w[i / W::kPerWord], w_value + i);
    for (int i = 0; i < kColumns; i += X::kPerWord)
      X::decode(x[i / X::kPerWord / 4].word[i / X::kPerWord % 4], x_value + i);
    auto scale = static_cast<uint8_t>(100 + random() % 40);
    double unit = 1;
    if (W::kPerWord == 8) unit = AsFp4::kUnit * double{e8m0_to_f32(scale)} / kSumUnit<W>;
    std::set<int> columns;
    for (int q = 0; q < kColumns / 4; ++q) {
      uint32_t a[2], b[2];
      w_fragment<X, W>(w, q, fp4_multiplier(scale), a);
      x_fragment<X, W>(x[q / kUnitProducts<X>], q % kUnitProducts<X>, b);
      for (int i = 0; i < 4; ++i) {
        int column = mma_column<W>(q, i);
        columns.insert(column);
        EXPECT_EQ(half_double<kHalf>(a[i / 2], i % 2), w_value[column] * unit) << q << " " << i;
        EXPECT_EQ(half_double<kHalf>(b[i / 2], i % 2), x_value[column]) << q << " " << i;
      }
    }
    EXPECT_EQ(columns.size(), static_cast<size_t>(kColumns));
  }
}

TEST(MmaFragments, BothSidesTakeTheSameColumns) {
  check_fragments<AsBF16, AsBF16>();
  check_fragments<AsBF16, AsFp8<uint8_t>>();
  check_fragments<AsBF16, AsFp4>();
  check_fragments<AsFp8<float>, AsBF16>();
  check_fragments<AsFp8<float>, AsFp8<uint8_t>>();
  check_fragments<AsFp8<float>, AsFp4>();
}

TEST(MmaFragments, F16HasEveryFp8Code) {
  for (uint32_t code = 0; code < 256; ++code) {
    float want = e4m3_to_f32(static_cast<uint8_t>(code)),
          got = f16_to_f32(static_cast<uint16_t>(e4m3_to_f16(code)));
    EXPECT_TRUE(std::isnan(want) ? std::isnan(got) : got == want) << code;
    EXPECT_EQ(std::signbit(got), std::signbit(want)) << code;
  }
}

// Each row's units stay within the row, one place each; the eight lanes that read at once meet
// eight different groups of four banks.
template <class F, class W>
void check_shared() {
  constexpr int kUnits = kStepBytes<F> / 16, kMine = kRunBytes<F, W> / 16;
  for (int row = 0; row < 16; ++row) {
    std::set<int> places;
    for (int unit = 0; unit < kUnits; ++unit) places.insert(shared_unit<F, W>(row, unit));
    EXPECT_EQ(places.size(), static_cast<size_t>(kUnits));
    EXPECT_GE(*places.begin(), 0);
    EXPECT_LT(*places.rbegin(), kUnits);
  }
  for (int row = 0; row < 8; row += 2)
    for (int h = 0; h < kRuns<W>; ++h)
      for (int u = 0; u < kMine; ++u) {
        std::set<int> banks;
        for (int lane = 0; lane < 8; ++lane) {
          int r = row + lane / 4, unit = (h * 4 + lane % 4) * kMine + u;
          banks.insert((r * kStepBytes<F> / 16 + shared_unit<F, W>(r, unit)) % 8);
        }
        EXPECT_EQ(banks.size(), 8u) << kMine << ": " << row << " " << h << " " << u;
      }
}

TEST(MmaFragments, LanesMeetDifferentBanks) {
  check_shared<AsBF16, AsBF16>();
  check_shared<AsBF16, AsFp8<uint8_t>>();
  check_shared<AsBF16, AsFp4>();
  check_shared<AsFp8<float>, AsBF16>();
  check_shared<AsFp8<float>, AsFp8<uint8_t>>();
  check_shared<AsFp8<float>, AsFp4>();
  check_shared<AsFp8<uint8_t>, AsFp8<uint8_t>>();
  check_shared<AsFp4, AsFp4>();
}

}  // namespace
}  // namespace hadal
