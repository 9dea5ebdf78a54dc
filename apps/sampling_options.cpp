// Sampling parameters from generation_config.json and flags.
#include "sampling_options.h"

#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "model_options.h"

namespace hadal {
namespace {

constexpr int kNoLimit = std::numeric_limits<int>::max();

// An int of SamplingParams from what the user typed; far too large means no limit.
int to_int(int64_t v) {
  return static_cast<int>(std::clamp<int64_t>(v, std::numeric_limits<int>::min(), kNoLimit));
}

uint64_t random_seed() {
  std::random_device device;
  return device();
}

}  // namespace

void SamplingOptions::declare(Flags& flags) {
  flags.section("Sampling (not given: as generation_config.json of the model says)");
  flags.option("--max-tokens", max_tokens,
               "Tokens of the answer (not given: to the context's end)");
  flags.option("--temperature", temperature, "0 takes the best token each time");
  flags.option("--top-k", top_k, "Draw from the k best tokens (0: all)");
  flags.option("--top-p", top_p, "Draw from the best tokens that have this share together");
  flags.option("--min-p", min_p, "Leave out tokens below this share of the best one's probability");
  flags.option("--presence-penalty", presence_penalty,
               "Subtracted from the logits of generated tokens");
  flags.option("--frequency-penalty", frequency_penalty,
               "Subtracted for each time that a token was generated");
  flags.option("--repetition-penalty", repetition_penalty,
               "Divides the logits of tokens seen (multiplies negative ones); 1: none");
  flags.option("--seed", seed, "Same seed, same answer (not given: another one each time)");
  flags.option("--stop", stop, "End before this text; may be given several times");
  flags.flag("--ignore-eos", ignore_eos, "Go on after the model's end token");
}

Status apply_generation_config(const std::string& json, const std::string& path,
                               SamplingParams& params) {
  auto config = nlohmann::json::parse(json, nullptr, false);
  if (!config.is_object()) return Error{fmt::format("{} is not a JSON object", path)};
  std::string wrong;
  auto read = [&](const char* key, auto& value) {
    auto it = config.find(key);
    if (it == config.end() || it->is_null()) return;
    if (!it->is_number())
      wrong = key;
    else if constexpr (std::is_same_v<decltype(value), int&>)
      value = static_cast<int>(std::clamp<double>(it->template get<double>(), -1, kNoLimit));
    else
      value = it->template get<float>();
  };
  read("temperature", params.temperature);
  read("top_p", params.top_p);
  read("top_k", params.top_k);
  read("min_p", params.min_p);
  read("repetition_penalty", params.repetition_penalty);
  auto sample = config.find("do_sample");
  if (sample != config.end() && sample->is_boolean() && !sample->get<bool>())
    params.temperature = 0;
  if (!wrong.empty()) return Error{fmt::format("{}: {} is not a number", path, wrong)};
  return {};
}

Result<SamplingParams> SamplingOptions::params(const std::string& model) const {
  SamplingParams p;
  std::filesystem::path path = std::filesystem::path(model) / "generation_config.json";
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) {
    HADAL_TRY(std::string json, read_text(path.string()));
    HADAL_TRY_STATUS(apply_generation_config(json, path.string(), p));
  }
  p.max_tokens = max_tokens ? to_int(*max_tokens) : kNoLimit;
  p.temperature = temperature.value_or(p.temperature);
  p.top_k = top_k ? to_int(*top_k) : p.top_k;
  p.top_p = top_p.value_or(p.top_p);
  p.min_p = min_p.value_or(p.min_p);
  p.presence_penalty = presence_penalty.value_or(p.presence_penalty);
  p.frequency_penalty = frequency_penalty.value_or(p.frequency_penalty);
  p.repetition_penalty = repetition_penalty.value_or(p.repetition_penalty);
  p.seed = seed ? *seed : random_seed();
  p.ignore_eos = ignore_eos;
  for (const auto& s : stop)
    if (s.empty()) return Error{"--stop is empty: give the text to stop at"};
  return p;
}

}  // namespace hadal
