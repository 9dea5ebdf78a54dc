// Runs a model on chosen cuts of token sequences: what the model tests share.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "cache/sequence.h"
#include "engine/device_step.h"
#include "engine/step_builder.h"
#include "kernels/dispatch/kernels.h"
#include "kernels/gpu/open_gpu.h"
#include "model/model.h"

namespace hadal {

class Runner {
 public:
  Runner(const Config& config, const TensorSource& source, const Numerics& numerics,
         int64_t max_context, int64_t max_sequences = 4, std::vector<std::string> without = {},
         int threads = 2, const std::string& device = "cpu")
      : config_(config),
        threads_(threads),
        device_(open_device(device).value()),
        kernels_(choose_kernels(device_.device, without)),
        layout_(make_cache_layout(config, numerics)) {
    ModelLimits limits;
    limits.max_rows = limits.max_logit_rows = max_context * max_sequences;
    limits.max_context = max_context;
    Gpu* gpu = device_.gpu.get();
    auto made = make_model(config, source, numerics, limits, {}, gpu);
    if (!made.ok()) {
      ADD_FAILURE() << made.error().message;
      std::abort();
    }
    model_ = std::move(made).value();
    std::vector<int64_t> pages;
    for (int g = 0; g < static_cast<int>(layout_.groups.size()); ++g)
      pages.push_back(max_sequences * layout_.pages_for(g, max_context));
    pool_ = std::make_unique<CachePool>(layout_, max_sequences, pages, gpu);
    builder_ = std::make_unique<StepBuilder>(layout_, limits.max_rows, max_sequences, max_context);
    if (gpu) {
      arena_ = Arena(gpu);
      logits_ = arena_.make(DType::kF32, {limits.max_logit_rows, config.vocab});
      if (int64_t n = workspace_bytes(device_.device, workspace_shapes(config, limits)))
        workspace_ = arena_.make(DType::kI8, {n});
      device_step_ =
          std::make_unique<DeviceStep>(*gpu, layout_, limits.max_rows, max_sequences, max_context);
    }
    // Nothing may be read before it is written.
    model_->poison_scratch();
    pool_->poison();
  }

  struct Part {
    Sequence* sequence;
    std::span<const int32_t> ids;
  };

  // One step over the parts; returns the logits of every row, [rows, V].
  std::vector<float> step(const std::vector<Part>& parts) {
    builder_->clear();
    for (const Part& p : parts) {
      EXPECT_TRUE(p.sequence->reserve(static_cast<int64_t>(p.ids.size())));
      builder_->add(*p.sequence, p.ids, static_cast<int64_t>(p.ids.size()));
    }
    Step step = builder_->step(pool_->layers());
    std::vector<float> logits(static_cast<size_t>(step.logit_count * config_.vocab));
    Gpu* gpu = device_.gpu.get();
    Context ctx{threads_,
                kernels_,
                device_.device.portable,
                device_.device.tuned,
                gpu ? gpu->stream() : nullptr,
                workspace_,
                gpu};
    Tensor rows(gpu ? logits_.data : logits.data(), DType::kF32, {step.logit_count, config_.vocab});
    model_->forward(ctx, gpu ? device_step_->upload(step) : step, rows);
    if (gpu) gpu->download(logits.data(), rows.data, rows.bytes());
    for (const Part& p : parts) p.sequence->advance(static_cast<int64_t>(p.ids.size()));
    return logits;
  }

  // All of `ids` in chunks of `chunk`; logits [T, V].
  std::vector<float> run(Sequence& sequence, std::span<const int32_t> ids, size_t chunk) {
    std::vector<float> all;
    for (size_t i = 0; i < ids.size(); i += chunk) {
      auto part = step({{&sequence, ids.subspan(i, std::min(chunk, ids.size() - i))}});
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  // The numbers of an f32 tensor of this device.
  std::vector<float> read(const Tensor& t) {
    std::vector<float> out(t.at<float>(), device_.gpu ? t.at<float>() : t.at<float>() + t.size());
    if (device_.gpu) {
      out.resize(t.size());
      device_.gpu->download(out.data(), t.data, t.bytes());
    }
    return out;
  }

  CachePool& pool() { return *pool_; }
  Model& model() { return *model_; }
  const Config& config() const { return config_; }

 private:
  Config config_;
  ThreadPool threads_;
  OpenedDevice device_;
  Kernels kernels_;
  CacheLayout layout_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<CachePool> pool_;
  std::unique_ptr<StepBuilder> builder_;
  Arena arena_;
  Tensor logits_, workspace_;
  std::unique_ptr<DeviceStep> device_step_;
};

inline int32_t argmax(const float* row, int64_t n) {
  int32_t best = 0;
  for (int64_t i = 1; i < n; ++i)
    if (row[i] > row[best]) best = static_cast<int32_t>(i);
  return best;
}

}  // namespace hadal
