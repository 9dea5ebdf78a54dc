// A fixture of tests/data/fixtures: the checkpoint and what Hugging Face transformers computed.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/safetensors.h"
#include "model/config.h"

namespace hadal {

struct Fixture {
  explicit Fixture(const std::string& name) {
    std::string folder = std::string(HADAL_TEST_DATA) + "/fixtures/" + name;
    config = parse_config(read_file(folder + "/config.json").value(), folder).value();
    source = take(Checkpoint::open(folder));
    reference = take(Checkpoint::open(folder + "/reference.safetensors"));
    prompt = ints("prompt_ids");
    greedy = ints("greedy_ids");
  }
  static std::unique_ptr<Checkpoint> take(Result<std::unique_ptr<Checkpoint>> r) {
    if (!r.ok()) ADD_FAILURE() << r.error().message;
    return std::move(r).value();
  }
  std::vector<int32_t> ints(const char* name) const {
    Tensor t = *reference->find(name);
    return {t.at<int32_t>(), t.at<int32_t>() + t.size()};
  }
  const float* floats(const std::string& name) const { return reference->find(name)->at<float>(); }
  int64_t tokens() const { return static_cast<int64_t>(prompt.size() + greedy.size()); }

  // |logits - prompt_logits| over rows [row0, row0 + n / V).
  float worst(const std::vector<float>& logits, int64_t row0 = 0) const {
    const float* want = floats("prompt_logits") + row0 * config.vocab;
    float d = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      float e = std::fabs(logits[i] - want[i]);
      d = e <= d ? d : e;  // a NaN sticks
    }
    return d;
  }

  Config config;
  std::unique_ptr<Checkpoint> source, reference;
  std::vector<int32_t> prompt, greedy;
};

inline constexpr const char* kFixtures[] = {
    "v3-tiny",      "v3-tiny-yarn", "v3-tiny-fp8",         "v32-tiny",
    "v32-tiny-fp8", "v4-tiny",      "v4-tiny-yarn-fp8fp4", "v4-odd-hidden"};

}  // namespace hadal
