// Sampling: the best logit, draws against the same noise in double precision and against
// the softmax they must follow, and rows that must not be sampled.
#include "gpu/reference.h"

namespace hadal {
namespace {

using namespace reference;

struct Rows {
  Vector<float> temperature;
  Vector<uint64_t> seed, index;
  Vector<int32_t> token, bad;
  explicit Rows(size_t n) : temperature(n), seed(n), index(n), token(n, -5), bad(n, -5) {}
  void sample(Machine& m, const Tensor& logits) {
    target::sample(on(m), logits, on_device(temperature.data()), on_device(seed.data()),
                   on_device(index.data()), on_device(token.data()), on_device(bad.data()));
  }
};

TEST(Sample, TemperatureZeroIsTheBest) {
  for (auto m : machines()) {
    for (DType type : {DType::kF32, DType::kBF16}) {
      Arena arena;
      Tensor logits = arena.normal(type, {6, 1001}, 3);
      set(logits, 9, 0, 1000), set(logits, 9, 1, 0), set(logits, 9, 2, 700), set(logits, 9, 2, 300);
      for (int64_t c = 0; c < 1001; ++c) set(logits, -7, 3, c);  // all equal: the first
      set(logits, NAN, 4, 256), set(logits, 50, 4, 3);
      set(logits, INFINITY, 5, 1), set(logits, -INFINITY, 5, 2);
      Rows r(6);
      r.sample(m, logits);
      EXPECT_EQ(r.token, (Vector<int32_t>{1000, 0, 300, 0, -1, -1})) << describe(m);
      EXPECT_EQ(r.bad, (Vector<int32_t>{0, 0, 0, 0, 1, 2})) << describe(m);
    }
  }
}

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

double noise(uint64_t seed, uint64_t index, int64_t id) {
  const uint64_t golden = 0x9e3779b97f4a7c15u;
  uint64_t draw = mix(mix(seed) + (index + 1) * golden);
  auto bits = static_cast<double>(mix(draw + static_cast<uint64_t>(id + 1) * golden) >> 40);
  return -std::log(-std::log((bits + 0.5) * 0x1p-24));
}

TEST(Sample, DrawsUseTheNoiseOfSeedIndexAndId) {
  for (auto m : machines()) {
    Arena arena;
    Tensor logits = arena.normal(DType::kF32, {20, 300}, 1);
    Rows r(20);
    for (size_t t = 0; t < 20; ++t) r.temperature[t] = 0.7f, r.seed[t] = t / 4, r.index[t] = t % 7;
    r.sample(m, logits);
    for (size_t t = 0; t < 20; ++t) {
      int64_t row = static_cast<int64_t>(t), best = 0;
      auto value = [&](int64_t id) {
        return get(logits, row, id) / 0.7f + noise(r.seed[t], r.index[t], id);
      };
      for (int64_t id = 1; id < 300; ++id)
        if (value(id) > value(best)) best = id;
      EXPECT_GE(value(r.token[t]), value(best) - 1e-5) << describe(m);
    }
  }
}

#ifndef __SANITIZE_THREAD__  // many rows, and nothing new for it to see
TEST(Sample, DrawsFollowTheSoftmax) {
  Machine m;
  Arena arena;
  int64_t rows = 4000;
  double p[5] = {0.4, 0.3, 0.2, 0.09, 0.01};
  Tensor logits = arena.poison(DType::kF32, {rows, 5});
  Rows r(static_cast<size_t>(rows));
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t id = 0; id < 5; ++id) set(logits, 2 * std::log(p[id]), t, id);
    r.temperature[t] = 2, r.seed[t] = 42, r.index[t] = t;
  }
  r.sample(m, logits);
  double count[5] = {}, chi = 0;
  for (int32_t id : r.token) ++count[id];
  for (int id = 0; id < 5; ++id) chi += std::pow(count[id] - p[id] * 4000, 2) / (p[id] * 4000);
  EXPECT_LT(chi, 18.5);  // 1 in 1000 with four degrees of freedom; the draws are fixed
}
#endif

}  // namespace
}  // namespace hadal
