// /v1/completions, /tokenize and /detokenize: prompts as text or as token ids.
#include <fmt/format.h>

#include "server/chat_request.h"
#include "server/openai.h"
#include "server/openai_shapes.h"

namespace hadal {
namespace {

using Kind = JsonValue::Kind;
using Ids = std::vector<int32_t>;

constexpr int64_t kDefaultTokens = 16;
constexpr size_t kMaxPrompts = 4096;

// add_special_tokens puts the token that begins every text in front, as `hadal run --raw` does,
// where it is not there yet.
Ids encode_text(const Served& served, const std::string& text, bool add_special) {
  Ids ids = served.tokenizer.encode(text, SpecialTokens::kParse);
  auto bos = static_cast<int32_t>(served.model.bos_id);
  if (add_special && (ids.empty() || ids.front() != bos)) ids.insert(ids.begin(), bos);
  return ids;
}

bool is_list_of(const JsonValue& v, Kind kind) {
  return v.kind == Kind::kArray && !v.members.empty() && v.members[0].value.kind == kind;
}

// A string, a list of strings, a list of ids, or a list of such lists.
std::vector<Ids> read_prompts(Fields& f, const Served& served, bool add_special) {
  std::vector<Ids> prompts;
  const JsonValue* prompt = f.find("prompt");
  if (!prompt) {
    f.fail("prompt", "is missing: give a text, token ids, or a list of either");
    return prompts;
  }
  if (is_list_of(*prompt, Kind::kArray)) {
    for (const JsonMember& m : prompt->members) {
      JsonValue one{Kind::kObject, {}, {{"prompt", m.value}}};
      Fields list(one);
      prompts.push_back(list.ids("prompt", served.model.vocab));
      f.join(list);
    }
  } else if (is_list_of(*prompt, Kind::kNumber)) {
    prompts.push_back(f.ids("prompt", served.model.vocab));
  } else {
    for (const std::string& text : f.strings("prompt"))
      prompts.push_back(encode_text(served, text, add_special));
  }
  if (prompts.empty()) f.fail("prompt", "is empty: give at least one token");
  if (prompts.size() > kMaxPrompts)
    f.fail("prompt", fmt::format("holds more than {} prompts", kMaxPrompts));
  return prompts;
}

void refuse_unsupported(Fields& f) {
  if (!f.string("suffix").empty()) f.fail("suffix", "is not supported: put it into the prompt");
  if (f.boolean("use_beam_search", false)) f.fail("use_beam_search", "is not supported");
  f.integer("best_of", 1, 1);
}

}  // namespace

void completions(Served& served, std::shared_ptr<Exchange> exchange, const JsonValue& body) {
  Fields f(body);
  check_model(f, served);
  refuse_unsupported(f);
  Ask ask = read_generation(f, served);
  ask.options.chat = false;
  OpenAIShapeOptions shape;
  shape.echo = f.boolean("echo", false);
  auto logprobs = f.integer("logprobs", 0, kMaxLogprobs);
  if (logprobs) ask.request.sampling.logprobs = static_cast<int>(*logprobs);
  if (logprobs && shape.echo) ask.request.prompt_logprobs = static_cast<int>(*logprobs);
  int64_t n = f.integer("n", 1, 1, 128);
  int64_t limit = f.integer("max_tokens", kDefaultTokens, 1, 1ll << 40);
  bool stream = f.boolean("stream", false);
  const JsonValue* stream_options = f.object("stream_options");
  if (stream_options && !stream) f.fail("stream_options", "needs \"stream\": true");
  if (stream_options) {
    Fields s(*stream_options, "stream_options.");
    shape.include_usage = s.boolean("include_usage", false);
    shape.continuous_usage = s.boolean("continuous_usage_stats", false);
    f.join(s);
  }
  std::vector<Ask> asks;
  for (Ids& prompt : read_prompts(f, served, f.boolean("add_special_tokens", true))) {
    ask.request.prompt = std::move(prompt);
    fit_context(f, served, ask.request.prompt.size(), limit, &ask);
    // Before the prompts are copied for each of their choices.
    if (static_cast<int64_t>(asks.size()) + n > served.loop->capacity())
      f.fail("n", too_many_choices(served));
    if (f.error()) break;
    for (int64_t j = 0; j < n; ++j) asks.push_back(choice_of(ask, j));
  }
  if (f.error()) return reply_error(*exchange, *f.error(), Dialect::kOpenAI);
  shape.tokenizer = &served.tokenizer;
  shape.id = random_id("cmpl-");
  shape.model = served.options.names.front();
  shape.created = now_seconds();
  shape.per_prompt = static_cast<int>(n);
  shape.logprobs = logprobs.has_value();
  answer(served, std::move(exchange), completion_shape(std::move(shape)), std::move(asks), stream);
}

void tokenize(Served& served, Exchange& exchange, const JsonValue& body) {
  Fields f(body);
  check_model(f, served);
  Ids ids;
  bool strings = f.boolean("return_token_strs", false);
  if (f.has("messages")) {
    ChatRequest request = read_chat_request(f, body);
    if (!f.error()) ids = chat_prompt(f, served, request).ids;
  } else {
    bool add_special = f.boolean("add_special_tokens", true);
    std::string text = f.string(f.has("content") ? "content" : "prompt");
    if (!f.has("prompt") && !f.has("content")) f.fail("prompt", "is missing: give a text");
    ids = encode_text(served, text, add_special);
  }
  if (f.error()) return reply_error(exchange, *f.error(), Dialect::kOpenAI);
  exchange.reply(200, "application/json", tokenize_body(served, ids, strings));
}

void detokenize(Served& served, Exchange& exchange, const JsonValue& body) {
  Fields f(body);
  check_model(f, served);
  if (!f.has("tokens")) f.fail("tokens", "is missing: give a list of token ids");
  Ids ids = f.ids("tokens", served.model.vocab);
  if (f.error()) return reply_error(exchange, *f.error(), Dialect::kOpenAI);
  exchange.reply(200, "application/json", detokenize_body(served.tokenizer.decode(ids, false)));
}

}  // namespace hadal
