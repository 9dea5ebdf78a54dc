// Binding checkpoints to the model's structs: the fixtures load, and every way in which one can be
// broken gives a sentence that names file and tensor.
#include "model/weights.h"

#include <gtest/gtest.h>

#include "base/safetensors.h"
#include "model/checkpoint_files.h"

namespace hadal {
namespace {

using namespace hadal::testing;

Config config_of(const std::string& folder) {
  auto config = parse_config(read_text(folder + "/config.json"), folder + "/config.json");
  EXPECT_TRUE(config.ok()) << config.error().message;
  return config.value();
}

// "" where the checkpoint loads, else the sentence.
std::string load_fault(const Config& config, const TensorSource& source) {
  if (config.family == Family::kV4) {
    auto w = load_v4_weights(config, source);
    return w.ok() ? "" : w.error().message;
  }
  auto w = load_v32_weights(config, source);
  return w.ok() ? "" : w.error().message;
}

TEST(Weights, EveryCheckpointLoads) {
  for (const auto& folder : all_checkpoints()) {
    auto checkpoint = Checkpoint::open(folder);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    EXPECT_EQ(load_fault(config_of(folder), *checkpoint.value()), "") << folder;
  }
}

}  // namespace
}  // namespace hadal
