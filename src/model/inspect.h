// What a checkpoint is, from config.json and the tensors' headers alone; shards may be missing.
// Source of the numbers: spec V4 sections 2 and 7, spec V3.2 sections 3.6 and 9.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/safetensors.h"
#include "model/config.h"

namespace hadal {

// State that a sequence keeps, in one of the formats that programs for these models use.
struct CacheCost {
  std::string format;  // "bf16", "FP8 entries, FP4 index keys", ...
  double bytes_per_token = 0;
  int64_t bytes_fixed = 0;  // per sequence, whatever its length: window rings, compressor states
  // Of the part that grows, after n tokens.
  double bytes_at(int64_t tokens) const { return bytes_per_token * static_cast<double>(tokens); }
};

struct ModelReport {
  std::string location;
  Config config;  // with quantisation as the tensors have it, where they are there
  using Count = std::pair<std::string, int64_t>;
  std::vector<Count> attention_layers;     // {"window", 2}, {"ratio-4", 21}, ...
  std::vector<Count> feed_forward_layers;  // {"MoE, hash router", 3}, ...
  std::string quantisation;

  // Parameters of the config: without scales and expert tables, draft modules apart. Active: those
  // that one token uses, embedding and head counted whole.
  int64_t parameters = 0, active_parameters = 0, draft_parameters = 0;
  // The whole checkpoint in the released format, draft modules counted.
  int64_t expected_tensors = 0, expected_bytes = 0;

  // What is there.
  std::vector<std::string> files, missing_files;
  int64_t missing_tensors = 0;  // that the index places in missing files
  std::vector<StoredTensor> tensors;
  int64_t bytes = 0;
  std::vector<Count> bytes_by_dtype;  // largest first
  std::vector<CacheCost> cache;
  // Sentences: tensors that config.json asks for and nobody has, tensors of another shape.
  std::vector<std::string> problems;
};

// The config with `fp8` and `fp4_experts` as the tensors show them; as it is where there are none.
Config config_as_stored(const Config& config, const std::vector<StoredTensor>& tensors);

// `headers` may be null: then the report is of the config alone.
ModelReport inspect_model(const Config& config, const CheckpointHeaders* headers,
                          const std::string& location);
// `location`: a checkpoint's folder (it may hold config.json alone), or a config.json.
Result<ModelReport> inspect_model(const std::string& location);

// A table for people; `tensors` adds one line per tensor.
std::string to_text(const ModelReport& report, bool tensors);
// One JSON object, indented.
std::string to_json(const ModelReport& report, bool tensors);

}  // namespace hadal
