// What all endpoints that generate text read alike: sampling, limits, stops; and the checks that a
// prompt fits. Names as OpenAI's and vLLM's clients send them.
#pragma once

#include <string>
#include <vector>

#include "server/answering.h"
#include "server/fields.h"

namespace hadal {

// Reads temperature, top_p, top_k, min_p, penalties, seed, stop, stop_token_ids, min_tokens,
// ignore_eos, logit_bias, include_stop_str_in_output, skip_special_tokens and priority into an Ask
// without a prompt.
Ask read_generation(Fields& fields, const Served& served);

// `limit`: max_tokens, where the request has it; else the answer may fill the context. Refuses
// prompts that leave no room, and limits beyond the context.
void fit_context(Fields& fields, const Served& served, size_t prompt_tokens,
                 std::optional<int64_t> limit, Ask* ask);

// `ask` for choice `j` of n: the seed differs, all else is equal.
Ask choice_of(const Ask& ask, int64_t j);

// The request's model name is one of ours, or an error that lists them.
void check_model(Fields& fields, const Served& served);

inline constexpr int64_t kMaxLogprobs = 20;

}  // namespace hadal
