// Family -> model: the single door for a new one.
#include "model/deepseek_v32.h"
#include "model/deepseek_v4.h"
#include "model/model.h"

namespace hadal {

Result<std::unique_ptr<Model>> make_model(const Config& config, const TensorSource& source,
                                          const Numerics& numerics, const ModelLimits& limits,
                                          const Progress& progress) {
  if (config.family == Family::kV4) {
    HADAL_TRY(auto weights, load_v4_weights(config, source, progress));
    return std::unique_ptr<Model>(
        std::make_unique<DeepseekV4>(config, std::move(weights), numerics, limits));
  }
  HADAL_TRY(auto weights, load_v32_weights(config, source, progress));
  return std::unique_ptr<Model>(
      std::make_unique<DeepseekV32>(config, std::move(weights), numerics, limits));
}

}  // namespace hadal
