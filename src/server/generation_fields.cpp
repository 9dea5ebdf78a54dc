// Sampling fields and limits.
#include "server/generation_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <random>

namespace hadal {
namespace {

constexpr int64_t kMaxStops = 16;

void read_bias(Fields& fields, const Served& served, ServeRequest* request) {
  const JsonValue* bias = fields.object("logit_bias");
  if (!bias) return;
  for (const JsonMember& m : bias->members) {
    bool digits = !m.key.empty() && m.key.find_first_not_of("0123456789") == std::string::npos;
    int64_t id = digits ? whole_number({JsonValue::Kind::kNumber, m.key, {}}).value_or(-1) : -1;
    double value = m.value.kind == JsonValue::Kind::kNumber ? std::stod(m.value.text) : 1e9;
    if (id < 0 || id >= served.model.vocab) {
      fields.fail("logit_bias", fmt::format("holds \"{}\": a key is a token id from 0 to {}", m.key,
                                            served.model.vocab - 1));
    } else if (!(value >= -100 && value <= 100)) {
      fields.fail("logit_bias", fmt::format("of {} must be a number from -100 to 100", m.key));
    } else {
      request->logit_bias.push_back({static_cast<int32_t>(id), static_cast<float>(value)});
    }
  }
}

}  // namespace

Ask read_generation(Fields& f, const Served& served) {
  constexpr double kAny = std::numeric_limits<float>::max();
  constexpr int64_t kInt = std::numeric_limits<int>::max();
  Ask ask;
  SamplingParams& p = ask.request.sampling;
  p = served.options.sampling;
  p.temperature = static_cast<float>(f.number("temperature", p.temperature, 0, 1e6));
  p.top_p = static_cast<float>(f.number("top_p", p.top_p, 0, 1));
  p.top_k = static_cast<int>(std::max<int64_t>(0, f.integer("top_k", p.top_k, -1, kInt)));
  p.min_p = static_cast<float>(f.number("min_p", p.min_p, 0, 1));
  p.presence_penalty = static_cast<float>(f.number("presence_penalty", 0, -kAny, kAny));
  p.frequency_penalty = static_cast<float>(f.number("frequency_penalty", 0, -kAny, kAny));
  double repetition = f.number("repetition_penalty", p.repetition_penalty, 0, kAny);
  if (static_cast<float>(repetition) <= 0)
    f.fail("repetition_penalty", "must be above 0 (1: none)");
  p.repetition_penalty = static_cast<float>(repetition);
  auto seed =
      f.integer("seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
  p.seed = seed ? static_cast<uint64_t>(*seed) : std::random_device()();
  p.ignore_eos = f.boolean("ignore_eos", false);
  ask.request.min_tokens = static_cast<int>(f.integer("min_tokens", 0, 0, kInt));
  ask.request.stop_ids = f.ids("stop_token_ids", served.model.vocab);
  ask.request.priority = static_cast<int>(f.integer("priority", 0, -kInt, kInt));
  read_bias(f, served, &ask.request);
  ask.options.stop = f.strings("stop");
  if (static_cast<int64_t>(ask.options.stop.size()) > kMaxStops)
    f.fail("stop", fmt::format("holds more than {} strings", kMaxStops));
  ask.options.include_stop = f.boolean("include_stop_str_in_output", false);
  ask.options.skip_special = f.boolean("skip_special_tokens", true);
  ask.options.format = served.options.chat.format;
  return ask;
}

void fit_context(Fields& fields, const Served& served, size_t prompt_tokens,
                 std::optional<int64_t> limit, Ask* ask) {
  int64_t context = served.model.max_context, prompt = static_cast<int64_t>(prompt_tokens);
  if (fields.error()) return;
  if (prompt == 0) return fields.fail("prompt", "is empty: give at least one token");
  if (prompt + limit.value_or(1) > context) {
    ApiError error{400,
                   fmt::format("This model's maximum context length is {} tokens. However, you "
                               "requested {} tokens ({} in the input, {} in the output). Please "
                               "reduce the length of the input or the requested output.",
                               context, prompt + limit.value_or(1), prompt, limit.value_or(1)),
                   "input_tokens", "context_length_exceeded"};
    fields.fail_with(std::move(error));
    return;
  }
  int64_t tokens = std::min<int64_t>(limit.value_or(context - prompt), 1 << 30);
  ask->request.sampling.max_tokens = static_cast<int>(tokens);
  if (ask->request.min_tokens > tokens)
    fields.fail("min_tokens", fmt::format("is {}: it must not exceed the {} tokens of the answer",
                                          ask->request.min_tokens, tokens));
}

Ask choice_of(const Ask& ask, int64_t j) {
  Ask one;
  const ServeRequest& r = ask.request;
  one.request.prompt = r.prompt;
  one.request.sampling = r.sampling;
  one.request.sampling.seed += static_cast<uint64_t>(j);
  one.request.logit_bias = r.logit_bias;
  one.request.stop_ids = r.stop_ids;
  one.request.min_tokens = r.min_tokens;
  one.request.prompt_logprobs = r.prompt_logprobs;
  one.request.priority = r.priority;
  one.options = ask.options;
  return one;
}

void check_model(Fields& fields, const Served& served) {
  std::string name = fields.string("model");
  if (fields.error() || served.serves(name)) return;
  std::string known;
  for (const std::string& n : served.options.names) known += (known.empty() ? "" : ", ") + n;
  fields.fail_with({404,
                    fmt::format("The model `{}` does not exist: this server has {}.", name, known),
                    "model", "model_not_found"});
}

}  // namespace hadal
