// Runs steps on a GPU: their arrays to the device, forward(), logits back. Decode steps (one token
// of each sequence) are padded to one of a few sizes, recorded when a size comes for the second
// time, and replayed from then on; all other steps are queued op by op.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "cache/sequence.h"
#include "engine/device_step.h"
#include "engine/step_builder.h"
#include "model/model.h"

namespace hadal {

class GpuRunner {
 public:
  struct Options {
    int64_t max_sequences = 1;  // of a step
    bool capture = true;        // false: every step op by op
  };

  // `model` and `pool` lie on `gpu`; the pool has a slot and a page of each group to spare, which
  // padding rows use. All outlive the runner.
  GpuRunner(Gpu& gpu, Model& model, CachePool& pool, const Context& context,
            const ModelLimits& limits, int64_t vocab, const Options& options);

  // forward() on what `builder` holds; the wanted logits as [n, V]. The builder may be padded.
  void run(StepBuilder& builder, std::vector<float>& logits);

  // Rows that a decode step of `rows` sequences is padded to.
  int64_t padded(int64_t rows) const;

  // Fills the logits with NaN, to show what a step would leave unwritten (tests).
  void poison() { arena_.poison(); }

 private:
  // Steps of equal rows and variant (Model::variant) queue the same work.
  using Key = std::pair<int64_t, int>;
  struct Graph {
    bool ran = false;  // once op by op: what is loaded or sized at first use is there
    std::unique_ptr<GpuGraph> graph;
  };

  void decode(const Step& step, const Tensor& logits);

  Gpu& gpu_;
  Model& model_;
  CachePool& pool_;
  Context context_;
  Options options_;
  int64_t max_rows_, vocab_;
  Arena arena_;
  DeviceStep device_step_;
  Tensor logits_;  // [max_logit_rows, V] f32
  Sequence pad_;   // what padding rows belong to; stays empty
  std::map<Key, Graph> graphs_;
};

}  // namespace hadal
