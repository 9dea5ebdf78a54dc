// mHC as fibers against double precision, on inputs that hide no fault: tokens scaled by their
// index, one stream 100 times larger, three sizes of the projection, numbers of tokens around the
// tile, odd widths, padded strides. And the tests of the test: a copy of the kernel with a dropped
// lane guard, or without a barrier, must not pass the same check.
#include "gpu/broken_hyper.h"
#include "gpu/reference.h"
#include "kernels/gpu/hyper.cu.h"

namespace hadal {
namespace {

using namespace reference;

struct Case {
  DType type;
  int64_t rows, streams, columns;
  double fn_scale;  // of the projection; 1 / sqrt(R C) makes logits of size 1
};

std::string name(const Case& c) {
  return std::string(dtype_name(c.type)) + " rows " + std::to_string(c.rows) + " streams " +
         std::to_string(c.streams) + " columns " + std::to_string(c.columns) + " fn " +
         std::to_string(c.fn_scale);
}

struct Hyper {
  Tensor x, a, y, post, comb;
  HyperWeights w;
  HyperParams p;
};

Hyper make(Arena& arena, const Case& c, bool head = false) {
  int64_t n = head ? c.streams : c.streams * (2 + c.streams);
  Hyper h;
  h.x = arena.normal(c.type, {c.rows, c.streams, c.columns}, 3,
                     [](int64_t i) { return static_cast<double>(i + 1); });
  for (int64_t t = 0; t < c.rows; ++t)
    for (int64_t i = 0; i < c.columns; ++i) set(h.x, 100 * get(h.x, t, 0, i), t, 0, i);
  h.a = arena.normal(c.type, {c.rows, c.columns}, 1);
  h.w.fn =
      arena.normal(DType::kF32, {n, c.streams * c.columns}, 0, [&](int64_t) { return c.fn_scale; });
  h.w.base = arena.normal(DType::kF32, {n});
  h.w.scale = arena.normal(DType::kF32, {head ? 1 : 3});
  h.y = arena.poison(c.type, {c.rows, c.columns}, 2);
  h.post = arena.poison(DType::kF32, {c.rows, c.streams});
  h.comb = arena.poison(DType::kF32, {c.rows, c.streams, c.streams});
  return h;
}

double sigmoid(double v) { return 1 / (1 + std::exp(-v)); }

struct Maps {
  Doubles pre, post, comb, y;
};

void normalise(Doubles& m, int64_t begin, int64_t n, int64_t step, double eps) {
  double sum = eps;
  for (int64_t k = 0; k < n; ++k) sum += m[begin + k * step];
  for (int64_t k = 0; k < n; ++k) m[begin + k * step] /= sum;
}

// The definition (kernels/hyper.h), in double.
Maps pre(const Hyper& h, bool head = false) {
  Maps out;
  int64_t r = h.x.shape[1], c = h.x.shape[2], n = h.w.fn.shape[0];
  for (int64_t t = 0; t < h.x.shape[0]; ++t) {
    double squares = 0;
    for (int64_t k = 0; k < r * c; ++k) squares += std::pow(get(h.x, t, k / c, k % c), 2);
    double factor = 1 / std::sqrt(squares / static_cast<double>(r * c) + h.p.norm_eps);
    Doubles m(n, 0.0);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t k = 0; k < r * c; ++k) m[i] += get(h.w.fn, i, k) * get(h.x, t, k / c, k % c);
      m[i] = m[i] * factor * get(h.w.scale, i < r ? 0 : i < 2 * r ? 1 : 2) + get(h.w.base, i);
    }
    for (int64_t j = 0; j < r; ++j) out.pre.push_back(sigmoid(m[j]) + h.p.eps);
    for (int64_t i = 0; i < c; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < r; ++j) sum += out.pre[t * r + j] * get(h.x, t, j, i);
      out.y.push_back(sum);
    }
    if (head) continue;
    for (int64_t k = 0; k < r; ++k) out.post.push_back(2 * sigmoid(m[r + k]));
    Doubles comb(m.begin() + 2 * r, m.end());
    for (int64_t j = 0; j < r; ++j) {
      double top = *std::max_element(&comb[j * r], &comb[j * r] + r);
      for (int64_t k = 0; k < r; ++k) comb[j * r + k] = std::exp(comb[j * r + k] - top);
      normalise(comb, j * r, r, 1, 0);
      for (int64_t k = 0; k < r; ++k) comb[j * r + k] += h.p.eps;
    }
    for (int64_t k = 0; k < r; ++k) normalise(comb, k, r, r, h.p.eps);
    for (int i = 1; i < h.p.sinkhorn_iters; ++i) {
      for (int64_t j = 0; j < r; ++j) normalise(comb, j * r, r, 1, h.p.eps);
      for (int64_t k = 0; k < r; ++k) normalise(comb, k, r, r, h.p.eps);
    }
    out.comb.insert(out.comb.end(), comb.begin(), comb.end());
  }
  return out;
}

// The worst error of post and comb, which see every fault of the projection.
double map_error(const Hyper& h, const Maps& want) {
  double worst = 0;
  for (auto [got, numbers] : {std::pair{h.post, &want.post}, std::pair{h.comb, &want.comb}}) {
    int64_t n = 0;
    Arena::each(got, [&, &got = got, &numbers = numbers](int64_t i, int64_t j, int64_t k) {
      double e = std::fabs(get(got, i, j, k) - (*numbers)[n++]);
      worst = std::isnan(e) ? INFINITY : std::max(worst, e);
    });
  }
  return worst;
}

// Logits are dot products of up to a thousand fp32 numbers, so their error grows with their size.
double tolerance(const Case& c) {
  return 1e-5 * std::max(1.0, c.fn_scale * std::sqrt(static_cast<double>(c.streams * c.columns)));
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (int64_t rows : {1, 3, 4, 17, 33})
    out.push_back({DType::kF32, rows, 4, 96, 1 / std::sqrt(384.0)});
#ifdef __SANITIZE_THREAD__
  return {out[2], {DType::kBF16, 6, 3, 65, 0.1}};
#endif
  out.push_back({DType::kBF16, 65, 4, 64, 1 / std::sqrt(256.0)});
  out.push_back({DType::kBF16, 1, 4, 7168, 1 / std::sqrt(28672.0)});
  out.push_back({DType::kBF16, 0, 4, 64, 1});
  out.push_back({DType::kBF16, 5, 4, 257, 1e-4});
  out.push_back({DType::kBF16, 5, 4, 257, 1});
  out.push_back({DType::kF32, 6, 3, 65, 0.1});
  out.push_back({DType::kF32, 2, 8, 31, 0.1});
  out.push_back({DType::kBF16, 2, 1, 40, 0.1});
  return out;
}

TEST(Hyper, PreMatchesDouble) {
  for (const Case& c : cases()) {
    Arena arena;
    Hyper h = make(arena, c);
    Maps want = pre(h);
    for (auto m : machines()) {
      h.post = arena.poison(DType::kF32, {c.rows, c.streams}, 1);
      h.comb = arena.poison(DType::kF32, {c.rows, c.streams, c.streams}, 1);
      fiber::hyper_pre(&m, h.x, h.w, h.p, h.y, h.post, h.comb);
      EXPECT_LE(map_error(h, want), tolerance(c)) << name(c) << " " << describe(m);
      double size = 300.0 * static_cast<double>(c.rows);
      expect_close(h.y, want.y, rounding(c.type), tolerance(c) * size, name(c) + " " + describe(m));
      EXPECT_TRUE(arena.padding_untouched());
    }
  }
}

TEST(Hyper, CombIsDoublyStochastic) {
  for (auto m : machines()) {
    Arena arena;
    Hyper h = make(arena, {DType::kF32, 9, 4, 64, 1 / 16.0});
    fiber::hyper_pre(&m, h.x, h.w, h.p, h.y, h.post, h.comb);
    for (int64_t t = 0; t < 9; ++t)
      for (int64_t n = 0; n < 4; ++n) {
        double row = 0, column = 0;
        for (int64_t k = 0; k < 4; ++k) {
          row += get(h.comb, t, n, k);
          column += get(h.comb, t, k, n);
        }
        EXPECT_NEAR(row, 1, 1e-3);
        EXPECT_NEAR(column, 1, 1e-5);
      }
  }
}

TEST(Hyper, PostMatchesDouble) {
  for (const Case& c : cases()) {
    for (auto m : machines()) {
      Arena arena;
      Hyper h = make(arena, c);
      h.post = arena.normal(DType::kF32, {c.rows, c.streams});
      h.comb = arena.normal(DType::kF32, {c.rows, c.streams, c.streams});
      Doubles want;
      Arena::each(h.x, [&](int64_t t, int64_t k, int64_t i) {
        double sum = get(h.post, t, k) * get(h.a, t, i);
        for (int64_t j = 0; j < c.streams; ++j) sum += get(h.comb, t, j, k) * get(h.x, t, j, i);
        want.push_back(sum);
      });
      fiber::hyper_post(&m, h.a, h.post, h.comb, h.x);
      double size = 300.0 * static_cast<double>(c.rows);
      expect_close(h.x, want, rounding(c.type), 2e-6 * size, name(c) + " " + describe(m));
      EXPECT_TRUE(arena.padding_untouched());
    }
  }
}

TEST(Hyper, FusedFormHasTheBitsOfItsParts) {
  for (const Case& c : cases()) {
    for (auto m : machines()) {
      Arena arena;
      Hyper h = make(arena, c);
      h.post = arena.normal(DType::kF32, {c.rows, c.streams});
      h.comb = arena.normal(DType::kF32, {c.rows, c.streams, c.streams});
      Hyper f = h;
      f.x = arena.copy(h.x), f.post = arena.copy(h.post), f.comb = arena.copy(h.comb);
      f.y = arena.copy(h.y);
      fiber::hyper_post(&m, h.a, h.post, h.comb, h.x);
      fiber::hyper_pre(&m, h.x, h.w, h.p, h.y, h.post, h.comb);
      fiber::hyper_post_pre(&m, f.a, f.x, f.w, f.p, f.y, f.post, f.comb);
      expect_same(f.x, h.x, "streams");
      expect_same(f.y, h.y, "y");
      expect_same(f.post, h.post, "post");
      expect_same(f.comb, h.comb, "comb");
    }
  }
}

TEST(Hyper, HeadMatchesDouble) {
  for (const Case& c : cases()) {
    for (auto m : machines()) {
      Arena arena;
      Hyper h = make(arena, c, true);
      fiber::hyper_head(&m, h.x, h.w, h.p, h.y);
      double size = 300.0 * static_cast<double>(c.rows);
      expect_close(h.y, pre(h, true).y, rounding(c.type), tolerance(c) * size, name(c));
      EXPECT_TRUE(arena.padding_untouched());
    }
  }
}

// Neither the order of threads, nor the grid, nor the other tokens change a bit.
TEST(Hyper, ResultsDependOnTheTokenAlone) {
  Arena arena;
  Hyper h = make(arena, {DType::kBF16, 17, 4, 96, 0.05});
  for (int warp : {32, 64}) {
    fiber::Machine in_order{warp, 0}, shuffled{warp, 5, 2};
    fiber::hyper_pre(&in_order, h.x, h.w, h.p, h.y, h.post, h.comb);
    Hyper other = h;
    other.y = arena.poison(DType::kBF16, {17, 96});
    other.comb = arena.poison(DType::kF32, {17, 4, 4});
    fiber::hyper_pre(&shuffled, h.x, h.w, h.p, other.y, h.post, other.comb);
    expect_same(other.y, h.y, "shuffled");
    expect_same(other.comb, h.comb, "shuffled");
    Tensor x = h.x.slice(0, 6, 7), y = other.y.slice(0, 6, 7), comb = other.comb.slice(0, 6, 7);
    fiber::hyper_pre(&in_order, x, h.w, h.p, y, h.post.slice(0, 6, 7), comb);
    expect_same(y, h.y.slice(0, 6, 7), "alone");
    expect_same(comb, h.comb.slice(0, 6, 7), "alone");
  }
}

// The check above on the copy: without a fault it passes, with one it fails.
double broken_error(broken::Fault fault, fiber::Machine m) {
  Arena arena;
  Hyper h = make(arena, {DType::kF32, 33, 4, 96, 1 / std::sqrt(384.0)});
  broken::hyper_maps(&m, fault, h.x, h.w, h.p, h.post, h.comb);
  return map_error(h, pre(h));
}

TEST(HyperTestOfTests, TheCopyIsRightWithoutAFault) {
  for (auto m : machines()) EXPECT_LE(broken_error(broken::Fault::kNone, m), 1e-5) << describe(m);
}

#ifndef __SANITIZE_THREAD__
TEST(HyperTestOfTests, ADroppedLaneGuardIsFound) {
  // A narrow warp has no lane to spare. On wide ones the next warp repairs the damage where it
  // stores later, as in order it does: this is why every check runs in a random order too.
  fiber::Machine wide = machines()[3];
  ASSERT_TRUE(wide.warp_size == 64 && wide.seed != 0);
  EXPECT_GT(broken_error(broken::Fault::kNoLaneGuard, wide), 1e-2);
}

TEST(HyperTestOfTests, AMissingBarrierIsFound) {
  for (auto m : machines())
    EXPECT_GT(broken_error(broken::Fault::kNoBarrier, m), 1e-2) << describe(m);
}
#else
TEST(HyperTestOfTestsDeathTest, AMissingBarrierIsReported) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        broken_error(broken::Fault::kNoBarrier, {32, 0});
        std::exit(0);
      },
      testing::ExitedWithCode(66), "data race");
}
#endif

}  // namespace
}  // namespace hadal
