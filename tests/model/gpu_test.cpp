// The GPU's path through the whole model: weights copied, caches and steps in device memory, every
// op a portable or tuned kernel. On fibers everywhere (one cut each, they are slow); on the first
// CUDA card, where there is one, for every chunking. References: transformers' float32 logits, and
// the CPU's release numerics.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "model/interleaved.h"

namespace hadal {
namespace {

constexpr float kTolerance = 1e-3f;

bool have_cuda() {
  auto opened = open_device("cuda");
  if (opened.ok()) return true;
  std::cout << "skipped on CUDA: " << opened.error().message << "\n";
  return false;
}

class GpuFixture : public testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  void SetUp() override {
    if (device() == "cuda" && !have_cuda()) GTEST_SKIP() << "no CUDA device";
  }
  std::string name() const { return std::get<0>(GetParam()); }
  std::string device() const { return std::get<1>(GetParam()); }
  bool fiber() const { return device() != "cuda"; }
};

// Prompt and greedy answer in exact numerics.
TEST_P(GpuFixture, ExactLogits) {
  Fixture f(name());
  Runner runner(f.config, *f.source, Numerics::exact(), f.tokens(), 1, {}, 2, device());
  std::vector<size_t> chunks = {64};
  if (!fiber()) chunks = {f.prompt.size(), 1, 3, 7, 64, 129};
  for (size_t chunk : chunks) {
    Sequence sequence(runner.pool());
    runner.model().poison_scratch();
    auto logits = runner.run(sequence, f.prompt, chunk);
    EXPECT_LE(f.worst(logits), kTolerance) << "chunk " << chunk;
    size_t answer = fiber() ? 3 : f.greedy.size();
    std::vector<float> row(logits.end() - f.config.vocab, logits.end());
    for (size_t i = 0; i < answer; ++i) {
      const float* want = f.floats("greedy_logits") + static_cast<int64_t>(i) * f.config.vocab;
      for (int64_t v = 0; v < f.config.vocab; ++v) ASSERT_NEAR(row[v], want[v], kTolerance) << i;
      int32_t id = argmax(row.data(), f.config.vocab);
      ASSERT_EQ(id, f.greedy[i]) << "token " << i;
      row = runner.step({{&sequence, {&id, 1}}});
    }
  }
}

// Three sequences out of step with each other, chunks of 5, 1 and 31 in one step.
TEST_P(GpuFixture, SequencesInterleaved) {
  Fixture f(name());
  std::span<const int32_t> ids(f.prompt);
  if (fiber()) ids = ids.first(std::min<size_t>(ids.size(), 24));
  Runner runner(f.config, *f.source, Numerics::exact(), f.tokens(), 3, {}, 2, device());
  expect_interleaved(f, runner, ids, kTolerance);
}

// |a - b| / |b| of the row that `part` of all rows are closer than.
double row_error(const std::vector<float>& a, const std::vector<float>& b, int64_t vocab,
                 double part) {
  std::vector<double> errors;
  for (size_t row = 0; row < b.size(); row += vocab) {
    double error = 0, size = 0;
    for (size_t i = row; i < row + vocab; ++i) {
      error += std::pow(double(a[i]) - b[i], 2);
      size += std::pow(double(b[i]), 2);
    }
    errors.push_back(std::sqrt(error / size));
  }
  std::ranges::sort(errors);
  return errors[static_cast<size_t>(part * double(errors.size()))];
}

// Release numerics against the CPU's. With fp32 activations and every quantiser on, the two differ
// by the order of fp32 sums alone, until somewhere a sum falls on the other side of a rounding and
// moves a code, which all later rows see. A wrong quantiser would show in every row: so the tenth
// of the rows that agrees best is held to 1e-5. With bf16 activations they round attention
// probabilities against another maximum too (running here, final there): half a percent per
// attention layer; where the next operand is FP8, a moved bf16 value can move a code by a
// sixteenth. Bounds on the median of the first 40 rows, before deviations feed on themselves: 2^-6,
// and 2^-3 with FP8 weights.
TEST_P(GpuFixture, ReleaseLogitsLikeTheCpu) {
  Fixture f(name());
  std::span<const int32_t> ids(f.prompt);
  ids = ids.first(std::min<size_t>(ids.size(), 40));
  auto distance = [&](const Numerics& numerics, double part) {
    auto logits = [&](const std::string& on) {
      Runner runner(f.config, *f.source, numerics, f.tokens(), 1, {}, 2, on);
      Sequence sequence(runner.pool());
      return runner.run(sequence, ids, 64);
    };
    return row_error(logits(device()), logits("cpu"), f.config.vocab, part);
  };
  EXPECT_LE(distance({DType::kF32, true, true}, 0.1), 1e-5);
  double release = distance(Numerics::release(), 0.5);
  RecordProperty("median_row_error", std::to_string(release));
  EXPECT_LE(release, f.config.fp8 ? 0x1p-3 : 0x1p-6);
}

INSTANTIATE_TEST_SUITE_P(All, GpuFixture,
                         testing::Combine(testing::ValuesIn(kFixtures),
                                          testing::Values("fiber:32", "fiber:64", "cuda")),
                         [](const auto& info) {
                           std::string s =
                               std::string(std::get<1>(info.param)) + "_" + std::get<0>(info.param);
                           std::ranges::replace(s, '-', '_');
                           std::ranges::replace(s, ':', '_');
                           return s;
                         });

}  // namespace
}  // namespace hadal
