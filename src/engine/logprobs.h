// Log-probabilities of one row of logits: log-softmax in double, of the unmodified distribution.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hadal.h"

namespace hadal {

// Fills logprob and top of `token` (whose id is set) from `logits` ([V] f32, finite). `count` best
// tokens, at most V; the lower id first among equals. `scratch` is any vector, kept for speed.
void add_logprobs(std::span<const float> logits, int count, std::vector<int32_t>& scratch,
                  GeneratedToken& token);

}  // namespace hadal
