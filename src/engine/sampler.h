// One request's sampler: a row of logits in, a token out. Pure: knows no model and no session.
//
// Order, as vLLM and OpenAI users expect it: repetition penalty, frequency and presence penalty,
// temperature, min_p, top_k, top_p, draw. Each filter sees what the one before it left: min_p
// compares with the best token's probability after temperature, top_k keeps exactly k tokens, top_p
// keeps the shortest run of best tokens whose share of the remaining mass reaches top_p, and at
// least one. Wherever two tokens are equal, the lower id is the better one. A request's own changes
// to the logits (TokenBias) come before the penalties.
//
// All arithmetic after the logits is double, so temperatures from 1e-45 to infinity are safe.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/status.h"
#include "hadal.h"

namespace hadal {

// An error names the field, its value and what it may be.
Status check_sampling(const SamplingParams& params, int64_t vocab);

// Uniform in [0, 1), a function of (seed, index) alone: token `index` of a request is the same
// whatever else runs beside it, and whatever was drawn before.
double uniform(uint64_t seed, uint64_t index);

// Added to a token's logit; minus infinity forbids it (not all of them may be forbidden).
struct TokenBias {
  int32_t id;
  float bias;
};

class Sampler {
 public:
  // `params` must pass check_sampling. `prompt` counts for the repetition penalty only.
  Sampler(const SamplingParams& params, int64_t vocab, std::span<const int32_t> prompt);

  // Draws the next token from `logits` ([V] f32, left as they are) and counts it as generated.
  // logprob and top are of the unmodified logits, as log-softmax in double; without
  // params.logprobs they stay empty. Ids of `bias` are in [0, V). Error where a logit is NaN or
  // infinite.
  Result<GeneratedToken> sample(std::span<const float> logits,
                                std::span<const TokenBias> bias = {});

 private:
  int32_t draw(double u);
  void apply_penalties();
  void apply_filters();
  void keep_top_k(int64_t k);
  void keep_top_p(double p);

  SamplingParams params_;
  uint64_t index_ = 0;                          // tokens drawn so far
  std::unordered_set<int32_t> seen_;            // prompt and generated
  std::unordered_map<int32_t, int64_t> count_;  // generated
  std::vector<double> score_;                   // [V] logits after the penalties
  std::vector<double> weight_;                  // [V] exp((score - best) / T), 0 where filtered
  std::vector<int32_t> order_;                  // ids in consideration, scratch of the filters
};

}  // namespace hadal
