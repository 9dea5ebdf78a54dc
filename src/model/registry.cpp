// Family -> model: the single door for a new one.
#include <algorithm>

#include "model/deepseek_v32.h"
#include "model/deepseek_v4.h"
#include "model/model.h"
#include "model/upload.h"

namespace hadal {
namespace {

constexpr int64_t kPageEntries = 64;  // the last page of a table may be part full

// A model whose weights lie on a GPU, with the memory that holds them.
template <class M, class Weights>
Result<std::unique_ptr<Model>> make(const Config& config, Weights weights, const Numerics& numerics,
                                    const ModelLimits& limits, const Progress& progress, Gpu* gpu) {
  GpuBuffer memory;
  if (gpu) {
    HADAL_TRY(memory, upload_weights(weights, *gpu, progress));
  }
  return std::unique_ptr<Model>(
      std::make_unique<M>(config, std::move(weights), std::move(memory), numerics, limits, gpu));
}

}  // namespace

Result<std::unique_ptr<Model>> make_model(const Config& config, const TensorSource& source,
                                          const Numerics& numerics, const ModelLimits& limits,
                                          const Progress& progress, Gpu* gpu) {
  // On a GPU the copy is what takes long.
  const Progress& binding = gpu ? Progress{} : progress;
  if (config.family == Family::kV4) {
    HADAL_TRY(auto weights, load_v4_weights(config, source, binding));
    return make<DeepseekV4>(config, std::move(weights), numerics, limits, progress, gpu);
  }
  HADAL_TRY(auto weights, load_v32_weights(config, source, binding));
  return make<DeepseekV32>(config, std::move(weights), numerics, limits, progress, gpu);
}

WorkspaceShapes workspace_shapes(const Config& c, const ModelLimits& limits) {
  int64_t pages = (limits.max_context + kPageEntries - 1) / kPageEntries * kPageEntries;
  WorkspaceShapes w;
  w.heads = c.heads;
  w.topk = c.index_topk;
  if (c.family == Family::kV4) {
    w.values = c.head_dim;
    w.max_keys = c.window + std::max(pages, c.index_topk);
    w.mixes = 2 * c.streams + c.streams * c.streams;
    w.scores = limits.max_context / 4;
  } else {
    w.values = c.kv_rank;
    w.max_keys = std::max(pages, c.index_topk);
    w.scores = limits.max_context;
  }
  return w;
}

int64_t model_scratch_bytes(const Config& config, const Numerics& numerics,
                            const ModelLimits& limits) {
  Arena arena = Arena::measure();
  if (config.family == Family::kV4)
    V4Scratch(arena, config, numerics, limits);
  else
    V32Scratch(arena, config, numerics, limits);
  return arena.bytes();
}

}  // namespace hadal
