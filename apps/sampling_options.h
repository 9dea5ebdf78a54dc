// How `run` and `chat` choose tokens: the checkpoint's generation_config.json, overridden by flags.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "flags.h"
#include "hadal.h"

namespace hadal {

struct SamplingOptions {
  std::optional<int64_t> max_tokens, top_k;
  std::optional<float> temperature, top_p, min_p;
  std::optional<float> presence_penalty, frequency_penalty, repetition_penalty;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  bool ignore_eos = false;

  void declare(Flags& flags);

  // The parameters for the checkpoint in folder `model`. Without --seed a seed is drawn.
  Result<SamplingParams> params(const std::string& model) const;
};

// What a generation_config.json says (temperature, top_p, top_k, min_p, repetition_penalty;
// do_sample false = temperature 0). `path` is for messages.
Status apply_generation_config(const std::string& json, const std::string& path,
                               SamplingParams& params);

}  // namespace hadal
