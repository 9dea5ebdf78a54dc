// Engine::generate: one sequence from prompt to last token, in steps. The plain loop for one user;
// a scheduler that serves many calls Engine::step itself.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "engine/sampler.h"
#include "hadal.h"

namespace hadal {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Status check_room(int64_t held, int64_t prompt, int64_t max_context) {
  if (prompt == 0) return Error{"the prompt is empty: give at least one token"};
  if (held + prompt < max_context) return {};
  std::string before = held ? fmt::format(" after {} that the session holds", held) : "";
  return Error{
      fmt::format("the prompt has {} tokens{}, the context {}, and at least one must be "
                  "left for the answer: shorten the prompt or raise --max-model-len",
                  prompt, before, max_context)};
}

}  // namespace

Result<Generation> Engine::generate(Session& session, std::span<const int32_t> prompt,
                                    const SamplingParams& params,
                                    const std::function<bool(const GeneratedToken&)>& on_token,
                                    const std::function<bool(int64_t done)>& on_prefill) {
  const ModelInfo& model = info();
  HADAL_TRY_STATUS(check_sampling(params, model.vocab));
  HADAL_TRY_STATUS(
      check_room(session.length(), static_cast<int64_t>(prompt.size()), model.max_context));

  Generation out;
  out.cached_tokens = session.length();
  out.prompt_tokens = out.cached_tokens + static_cast<int64_t>(prompt.size());
  std::vector<float> logits;
  auto run = [&](std::span<const int32_t> ids, bool last) {
    StepInput input{&session, ids, last ? StepInput::Logits::kLast : StepInput::Logits::kNone};
    return step({&input, 1}, logits);
  };

  auto start = Clock::now();
  for (size_t done = 0; done < prompt.size();) {
    size_t n = std::min(prompt.size() - done, static_cast<size_t>(model.max_step_tokens));
    HADAL_TRY_STATUS(run(prompt.subspan(done, n), done + n == prompt.size()));
    done += n;
    if (on_prefill && !on_prefill(static_cast<int64_t>(done))) {
      out.reason = FinishReason::kCancelled;
      out.prefill_seconds = seconds_since(start);
      return out;
    }
  }
  out.prefill_seconds = seconds_since(start);

  Sampler sampler(params, model.vocab, prompt);
  start = Clock::now();
  for (;;) {
    HADAL_TRY(GeneratedToken token, sampler.sample(logits));
    out.ids.push_back(token.id);
    out.decode_seconds = seconds_since(start);
    bool go_on = on_token(token);
    bool end = std::ranges::find(model.eos_ids, token.id) != model.eos_ids.end();
    if (end && !params.ignore_eos) {
      out.reason = FinishReason::kStop;
    } else if (!go_on) {
      out.reason = FinishReason::kCancelled;
    } else if (static_cast<int>(out.ids.size()) >= params.max_tokens) {
      out.reason = FinishReason::kLength;
    } else if (session.length() + 1 >= model.max_context) {
      out.reason = FinishReason::kContext;
    } else {
      HADAL_TRY_STATUS(run({&out.ids.back(), 1}, true));
      continue;
    }
    return out;
  }
}

}  // namespace hadal
