// Padding, recording, replaying. What a graph reads lies at fixed addresses: the step's arrays,
// page tables, scratch, caches, logits. What it must not freeze is on the device: lengths, pages,
// counts.
#include "engine/gpu_runner.h"

#include <algorithm>

namespace hadal {

GpuRunner::GpuRunner(Gpu& gpu, Model& model, CachePool& pool, const Context& context,
                     const ModelLimits& limits, int64_t vocab, const Options& options)
    : gpu_(gpu),
      model_(model),
      pool_(pool),
      context_(context),
      options_(options),
      max_rows_(std::min(limits.max_rows, limits.max_logit_rows)),
      vocab_(vocab),
      arena_(&gpu),
      device_step_(gpu, pool.layout(), limits.max_rows, options.max_sequences, limits.max_context),
      logits_(arena_.make(DType::kF32, {limits.max_logit_rows, vocab})),
      pad_(pool) {
  HADAL_CHECK(pad_.reserve(1), "the pool has pages to spare for padding");
}

int64_t GpuRunner::padded(int64_t rows) const {
  int64_t size = 1;
  while (size < rows) size += size < 4 ? size : size < 32 ? 4 : size < 128 ? 16 : 64;
  return std::min({size, options_.max_sequences, max_rows_});
}

void GpuRunner::run(StepBuilder& builder, std::vector<float>& out) {
  Step step = builder.step(pool_.layers());
  int64_t wanted = step.logit_count, rows = step.batch.rows;
  bool replayable =
      options_.capture && rows == step.batch.sequences && rows == wanted && !model_.observer;
  if (replayable) {
    const int32_t any_token = 0;
    for (int64_t n = padded(rows) - rows; n > 0; --n) builder.add(pad_, {&any_token, 1}, 1);
    step = builder.step(pool_.layers());
  }
  Tensor logits(logits_.data, DType::kF32, {step.logit_count, vocab_});
  Step device = device_step_.upload(step);
  if (replayable)
    decode(device, logits);
  else
    model_.forward(context_, device, logits);
  out.resize(static_cast<size_t>(wanted * vocab_));
  gpu_.download(out.data(), logits.data, wanted * vocab_ * dtype_size(DType::kF32));
}

void GpuRunner::decode(const Step& step, const Tensor& logits) {
  Graph& g = graphs_[{step.batch.rows, model_.variant(step)}];
  if (g.graph) return g.graph->replay();
  if (!g.ran) {
    g.ran = true;
    return model_.forward(context_, step, logits);
  }
  gpu_.begin_capture();
  model_.forward(context_, step, logits);
  g.graph = gpu_.end_capture();
  if (g.graph) g.graph->replay();
}

}  // namespace hadal
