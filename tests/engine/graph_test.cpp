// Decode steps padded, recorded and replayed (GpuRunner) against the same steps op by op, bit for
// bit: the hazards of captured graphs. On fibers nothing is recorded, but padding is the same; on
// the first CUDA card all of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <random>
#include <thread>

#include "engine/gpu_runner.h"
#include "kernels/dispatch/kernels.h"
#include "kernels/gpu/open_gpu.h"
#include "model/fixture.h"

namespace hadal {
namespace {

// A model on a device with two runners over the same weights, caches apart: one captures.
class Rig {
 public:
  static constexpr int64_t kSequences = 9;

  Rig(const Fixture& f, const std::string& device, bool capture)
      : threads_(2),
        device_(open_device(device).value()),
        kernels_(choose_kernels(device_.device)),
        vocab_(f.config.vocab) {
    Gpu* gpu = device_.gpu.get();
    ModelLimits limits{64, 160, 64};
    Numerics numerics = Numerics::release();
    CacheLayout layout = make_cache_layout(f.config, numerics);
    auto made = make_model(f.config, *f.source, numerics, limits, {}, gpu);
    HADAL_CHECK(made.ok(), made.error().message);
    model_ = std::move(made).value();
    std::vector<int64_t> pages;
    for (int g = 0; g < static_cast<int>(layout.groups.size()); ++g)
      pages.push_back(kSequences * layout.pages_for(g, limits.max_context) + 1);
    pool_ = std::make_unique<CachePool>(layout, kSequences + 1, pages, gpu);
    builder_ =
        std::make_unique<StepBuilder>(layout, limits.max_rows, kSequences, limits.max_context);
    arena_ = Arena(gpu);
    workspace_ = arena_.make(DType::kI8,
                             {workspace_bytes(device_.device, workspace_shapes(f.config, limits))});
    Context context{
        threads_,   kernels_, device_.device.portable, device_.device.tuned, gpu->stream(),
        workspace_, gpu};
    runner_ = std::make_unique<GpuRunner>(*gpu, *model_, *pool_, context, limits, vocab_,
                                          GpuRunner::Options{kSequences, capture});
    poison();
    pool_->poison();
    for (int i = 0; i < kSequences; ++i) sequences.push_back(std::make_unique<Sequence>(*pool_));
  }

  // Runs ids[i] of sequence which[i]; every row's logits.
  std::vector<float> step(const std::vector<int>& which,
                          const std::vector<std::vector<int32_t>>& ids) {
    builder_->clear();
    for (size_t i = 0; i < which.size(); ++i) {
      auto n = static_cast<int64_t>(ids[i].size());
      EXPECT_TRUE(sequences[which[i]]->reserve(n));
      builder_->add(*sequences[which[i]], ids[i], n);
    }
    std::vector<float> logits;
    runner_->run(*builder_, logits);
    for (size_t i = 0; i < which.size(); ++i)
      sequences[which[i]]->advance(static_cast<int64_t>(ids[i].size()));
    EXPECT_TRUE(std::ranges::all_of(logits, [](float x) { return std::isfinite(x); }));
    return logits;
  }

  void poison() {
    model_->poison_scratch();
    runner_->poison();
    arena_.poison();
  }
  int64_t padded(int64_t rows) const { return runner_->padded(rows); }

 private:
  ThreadPool threads_;
  OpenedDevice device_;
  Kernels kernels_;
  int64_t vocab_;
  Arena arena_;
  Tensor workspace_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<CachePool> pool_;
  std::unique_ptr<StepBuilder> builder_;
  std::unique_ptr<GpuRunner> runner_;

 public:
  std::vector<std::unique_ptr<Sequence>> sequences;
};

bool have_cuda() { return open_device("cuda").ok(); }

class Graph : public testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  void SetUp() override {
    if (cuda() && !have_cuda()) GTEST_SKIP() << "no CUDA device";
    f_ = std::make_unique<Fixture>(std::get<0>(GetParam()));
    eager_ = std::make_unique<Rig>(*f_, device(), false);
    graph_ = std::make_unique<Rig>(*f_, device(), true);
  }
  std::string device() const { return std::get<1>(GetParam()); }
  bool cuda() const { return device() == "cuda"; }

  int32_t token() { return static_cast<int32_t>(random_() % f_->config.vocab); }

  // The same step on both; equal bits. A sequence near the context's end starts again.
  void both(const std::vector<int>& which, size_t tokens) {
    std::vector<std::vector<int32_t>> ids(which.size());
    for (size_t i = 0; i < which.size(); ++i) {
      for (size_t n = 0; n < tokens; ++n) ids[i].push_back(token());
      for (Rig* rig : {eager_.get(), graph_.get()})
        if (rig->sequences[which[i]]->length() + static_cast<int64_t>(tokens) > 160)
          rig->sequences[which[i]]->rewind(0);
    }
    auto want = eager_->step(which, ids), got = graph_->step(which, ids);
    ASSERT_EQ(want.size(), got.size());
    ASSERT_EQ(std::memcmp(want.data(), got.data(), want.size() * 4), 0)
        << which.size() << " sequences";
  }

  // `n` different sequences in a random order.
  std::vector<int> some(size_t n) {
    std::vector<int> all(Rig::kSequences);
    for (int i = 0; i < Rig::kSequences; ++i) all[i] = i;
    std::shuffle(all.begin(), all.end(), random_);
    all.resize(n);
    return all;
  }

  std::mt19937 random_{7};
  std::unique_ptr<Fixture> f_;
  std::unique_ptr<Rig> eager_, graph_;
};

TEST_P(Graph, EveryLiveBatchUnderEveryCapturedSize) {
  for (int i = 0; i < Rig::kSequences; ++i) both({i}, 5 + i);
  // Three times each: op by op, recorded, replayed; scratch is NaN before each of them.
  for (int round = 0; round < 3; ++round)
    for (size_t n = 1; n <= Rig::kSequences; ++n) {
      graph_->poison();
      both(some(n), 1);
      if (HasFatalFailure()) return;
    }
}

TEST_P(Graph, SizesInTurnWithPrefillBetween) {
  for (int i = 0; i < Rig::kSequences; ++i) both({i}, 3);
  for (int round = 0; round < (cuda() ? 12 : 2); ++round) {
    both(some(2), 1);
    both(some(Rig::kSequences), 1);
    both(some(2), 1);
    both(some(2), 6);  // a chunk of two prompts
    both(some(3), 1);
    if (HasFatalFailure()) return;
  }
}

TEST_P(Graph, ManyReplaysOfRandomBatches) {
  for (int i = 0; i < Rig::kSequences; ++i) both({i}, 4);
  for (int n = 0; n < (cuda() ? 1000 : 6); ++n) {
    both(some(1 + random_() % Rig::kSequences), 1);
    if (HasFatalFailure()) return;
  }
}

TEST_P(Graph, ReplayAfterAMinuteIdle) {
  if (!cuda()) GTEST_SKIP() << "fibers do not idle";
  both({0, 1}, 4);
  for (int i = 0; i < 3; ++i) both({0, 1}, 1);
  std::this_thread::sleep_for(std::chrono::seconds(60));
  both({0, 1}, 1);
}

TEST_P(Graph, PadsToFewSizes) {
  EXPECT_EQ(graph_->padded(1), 1);
  EXPECT_EQ(graph_->padded(2), 2);
  EXPECT_EQ(graph_->padded(3), 4);
  EXPECT_EQ(graph_->padded(5), 8);
  EXPECT_EQ(graph_->padded(9), 9) << "never more than there are sequences";
}

INSTANTIATE_TEST_SUITE_P(Models, Graph,
                         testing::Combine(testing::Values("v3-tiny-fp8", "v32-tiny-fp8",
                                                          "v4-tiny-yarn-fp8fp4"),
                                          testing::Values("fiber:32", "cuda")),
                         [](const auto& info) {
                           std::string s =
                               std::string(std::get<1>(info.param)) + "_" + std::get<0>(info.param);
                           std::ranges::replace(s, '-', '_');
                           std::ranges::replace(s, ':', '_');
                           return s;
                         });

}  // namespace
}  // namespace hadal
