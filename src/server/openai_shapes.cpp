// JSON of the OpenAI endpoints.
#include "server/openai_shapes.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "text/detokenizer.h"

namespace hadal {
namespace {

using Json = nlohmann::ordered_json;
using Kind = StreamEvent::Kind;

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}
std::string frame(const Json& json) { return "data: " + dumped(json) + "\n\n"; }

// Clients add these up: no infinity may come.
double finite(float logprob) {
  return std::isfinite(logprob) ? std::max(logprob, -9999.f) : -9999.;
}

// The token's text by itself; a part of a character shows as U+FFFD.
std::string token_text(const Tokenizer& tokenizer, int32_t id) {
  std::string text;
  Utf8Stream utf8;
  utf8.push(tokenizer.token_bytes(id), text);
  utf8.finish(text);
  return text;
}

Json usage_json(const Usage& u) {
  return {{"prompt_tokens", u.prompt},
          {"completion_tokens", u.completion},
          {"total_tokens", u.prompt + u.completion},
          {"prompt_tokens_details", {{"cached_tokens", u.cached}}},
          {"completion_tokens_details", {{"reasoning_tokens", u.reasoning}}},
          {"prompt_cache_hit_tokens", u.cached},
          {"prompt_cache_miss_tokens", u.prompt - u.cached}};
}

Json stop_reason(const AnswerEnd& end) {
  if (end.stop_string) return *end.stop_string;
  if (end.stop_id) return *end.stop_id;
  return nullptr;
}

bool is_length(const AnswerEnd& end) {
  return end.reason == FinishReason::kLength || end.reason == FinishReason::kContext;
}

Json error_json(const ApiError& error) { return Json::parse(error_body(error, Dialect::kOpenAI)); }

class OpenAIShape : public AnswerShape {
 public:
  OpenAIShape(OpenAIShapeOptions options, const char* object)
      : o_(std::move(options)), object_(object) {}

  std::string stream_error(const ApiError& error) override {
    return frame(error_json(error)) + "data: [DONE]\n\n";
  }
  std::string stream_end(const std::vector<Choice>& choices) override {
    std::string out;
    if (o_.include_usage) {
      Json last = head();
      last["choices"] = Json::array();
      last["usage"] = usage_json(usage_of(choices, o_.per_prompt));
      out += frame(last);
    }
    return out + "data: [DONE]\n\n";
  }

 protected:
  Json head() const {
    return {{"id", o_.id}, {"object", object_}, {"created", o_.created}, {"model", o_.model}};
  }
  std::string chunk(const std::vector<Choice>& choices, Json choice) const {
    Json json = head();
    json["choices"] = Json::array({std::move(choice)});
    if (o_.continuous_usage) json["usage"] = usage_json(usage_of(choices, o_.per_prompt));
    return frame(json);
  }
  OpenAIShapeOptions o_;

 private:
  const char* object_;
};

class ChatShape : public OpenAIShape {
 public:
  explicit ChatShape(OpenAIShapeOptions options)
      : OpenAIShape(std::move(options), "chat.completion.chunk") {}

  std::string whole(const std::vector<Choice>& choices) override {
    Json json = head();
    json["object"] = "chat.completion";
    json["choices"] = Json::array();
    for (size_t i = 0; i < choices.size(); ++i) {
      const Choice& c = choices[i];
      json["choices"].push_back({{"index", i},
                                 {"message", message(c)},
                                 {"logprobs", logprobs(c.scores)},
                                 {"finish_reason", finish_reason(c)},
                                 {"stop_reason", stop_reason(*c.end)}});
    }
    json["system_fingerprint"] = nullptr;
    json["usage"] = usage_json(usage_of(choices, o_.per_prompt));
    return dumped(json);
  }

  std::string stream_piece(const std::vector<Choice>& choices, size_t i,
                           const AnswerPiece& piece) override {
    const Choice& c = choices[i];
    states_.resize(choices.size());
    std::string out;
    std::vector<Json> deltas;
    if (!std::exchange(states_[i].begun, true))
      deltas.push_back({{"role", "assistant"}, {"content", ""}});
    for (const StreamEvent& e : piece.events) add_delta(c, states_[i], e, deltas);
    // Scores that no text belongs to yet (it is held back) still go out with their token.
    if (deltas.empty() && !piece.scores.empty()) deltas.push_back(Json::object());
    for (size_t k = 0; k < deltas.size(); ++k) {
      bool last = k + 1 == deltas.size();
      out += chunk(choices, {{"index", i},
                             {"delta", std::move(deltas[k])},
                             {"logprobs", last ? logprobs(piece.scores) : Json(nullptr)},
                             {"finish_reason", nullptr}});
    }
    if (c.end && piece.end) {
      out += chunk(choices, {{"index", i},
                             {"delta", Json::object()},
                             {"logprobs", nullptr},
                             {"finish_reason", finish_reason(c)},
                             {"stop_reason", stop_reason(*c.end)}});
    }
    return out;
  }

 private:
  struct State {
    bool begun = false;
    int calls = 0;
  };

  // Neighbouring pieces of one run go out as one delta.
  void add_delta(const Choice& c, State& state, const StreamEvent& e, std::vector<Json>& deltas) {
    auto append = [&](const char* name) {
      if (deltas.empty() || !deltas.back().contains(name) || deltas.back().contains("role"))
        deltas.push_back({{name, ""}});
      auto& text = deltas.back()[name].get_ref<std::string&>();
      text += e.text;
    };
    switch (e.kind) {
      case Kind::kReasoning:
        if (!o_.include_reasoning) return;
        append("reasoning_content");
        deltas.back()["reasoning"] = deltas.back()["reasoning_content"];
        return;
      case Kind::kContent:
        return append("content");
      case Kind::kCallBegin: {
        const AnsweredCall& call = c.calls[state.calls];
        Json function = {{"name", call.name}, {"arguments", ""}};
        deltas.push_back({{"tool_calls", Json::array({{{"index", state.calls++},
                                                       {"id", call.id},
                                                       {"type", "function"},
                                                       {"function", std::move(function)}}})}});
        return;
      }
      case Kind::kCallArguments: {
        int index = state.calls - 1;
        bool joins = !deltas.empty() && deltas.back().contains("tool_calls") &&
                     !deltas.back()["tool_calls"][0].contains("id");
        if (!joins) {
          deltas.push_back({{"tool_calls", Json::array({{{"index", index},
                                                         {"function", {{"arguments", ""}}}}})}});
        }
        auto& text = deltas.back()["tool_calls"][0]["function"]["arguments"];
        text.get_ref<std::string&>() += e.text;
        return;
      }
      case Kind::kCallEnd:
        return;
    }
  }

  Json message(const Choice& c) const {
    Json m = {{"role", "assistant"}};
    bool no_content = c.content.empty() && !c.calls.empty();
    m["content"] = no_content ? Json(nullptr) : Json(c.content);
    m["refusal"] = nullptr;
    if (o_.include_reasoning && !c.reasoning.empty()) {
      m["reasoning_content"] = c.reasoning;
      m["reasoning"] = c.reasoning;
    }
    for (const AnsweredCall& call : c.calls) {
      Json function = {{"name", call.name}, {"arguments", call.arguments}};
      m["tool_calls"].push_back(
          {{"id", call.id}, {"type", "function"}, {"function", std::move(function)}});
    }
    return m;
  }

  Json finish_reason(const Choice& c) const {
    if (is_length(*c.end)) return "length";
    return c.calls.empty() || o_.named_call ? "stop" : "tool_calls";
  }

  Json token_json(int32_t id, float logprob) const {
    Json bytes = Json::array();
    for (unsigned char b : o_.tokenizer->token_bytes(id)) bytes.push_back(b);
    return {{"token", token_text(*o_.tokenizer, id)},
            {"logprob", finite(logprob)},
            {"bytes", std::move(bytes)}};
  }

  Json logprobs(const std::vector<GeneratedToken>& scores) const {
    if (!o_.logprobs) return nullptr;
    Json content = Json::array();
    for (const GeneratedToken& t : scores) {
      Json entry = token_json(t.id, t.logprob);
      entry["top_logprobs"] = Json::array();
      for (const TokenLogprob& best : t.top)
        entry["top_logprobs"].push_back(token_json(best.id, best.logprob));
      content.push_back(std::move(entry));
    }
    return {{"content", std::move(content)}};
  }

  std::vector<State> states_;
};

class CompletionShape : public OpenAIShape {
 public:
  explicit CompletionShape(OpenAIShapeOptions options)
      : OpenAIShape(std::move(options), "text_completion") {}

  std::string whole(const std::vector<Choice>& choices) override {
    Json json = head();
    json["choices"] = Json::array();
    for (size_t i = 0; i < choices.size(); ++i) {
      const Choice& c = choices[i];
      std::string before = o_.echo ? o_.tokenizer->decode(c.prompt, true) : "";
      size_t offset = 0;
      Json choice = {{"index", i}, {"text", before + c.content}};
      choice["logprobs"] = o_.logprobs ? logprobs(c, o_.echo, c.scores, offset) : Json(nullptr);
      choice["finish_reason"] = is_length(*c.end) ? "length" : "stop";
      choice["stop_reason"] = stop_reason(*c.end);
      json["choices"].push_back(std::move(choice));
    }
    json["usage"] = usage_json(usage_of(choices, o_.per_prompt));
    return dumped(json);
  }

  std::string stream_piece(const std::vector<Choice>& choices, size_t i,
                           const AnswerPiece& piece) override {
    const Choice& c = choices[i];
    states_.resize(choices.size());
    State& state = states_[i];
    bool echo = !std::exchange(state.begun, true) && o_.echo;
    std::string text = echo ? o_.tokenizer->decode(c.prompt, true) : "";
    for (const StreamEvent& e : piece.events) text += e.text;
    if (text.empty() && piece.scores.empty() && !piece.end) return {};
    Json choice = {{"index", i}, {"text", text}};
    choice["logprobs"] =
        o_.logprobs ? logprobs(c, echo, piece.scores, state.offset) : Json(nullptr);
    choice["finish_reason"] = nullptr;
    if (piece.end) {
      choice["finish_reason"] = is_length(*c.end) ? "length" : "stop";
      choice["stop_reason"] = stop_reason(*c.end);
    }
    return chunk(choices, std::move(choice));
  }

 private:
  struct State {
    bool begun = false;
    size_t offset = 0;
  };

  // Columns of tokens; with `prompt`, those of the prompt first, the first of which has no score.
  Json logprobs(const Choice& c, bool prompt, const std::vector<GeneratedToken>& scores,
                size_t& offset) const {
    Json tokens = Json::array(), values = Json::array(), tops = Json::array(),
         offsets = Json::array();
    auto add = [&](int32_t id, const GeneratedToken* score) {
      std::string text = token_text(*o_.tokenizer, id);
      offsets.push_back(offset);
      offset += std::ranges::count_if(text, [](char b) { return (b & 0xC0) != 0x80; });
      tokens.push_back(std::move(text));
      values.push_back(score ? Json(finite(score->logprob)) : Json(nullptr));
      if (!score) {
        tops.push_back(nullptr);
        return;
      }
      Json top = Json::object();
      for (const TokenLogprob& best : score->top)
        top[token_text(*o_.tokenizer, best.id)] = finite(best.logprob);
      top[token_text(*o_.tokenizer, id)] = finite(score->logprob);
      tops.push_back(std::move(top));
    };
    if (prompt) {
      add(c.prompt[0], nullptr);
      for (const GeneratedToken& t : c.prompt_scores) add(t.id, &t);
    }
    for (const GeneratedToken& t : scores) add(t.id, &t);
    return {{"tokens", std::move(tokens)},
            {"token_logprobs", std::move(values)},
            {"top_logprobs", std::move(tops)},
            {"text_offset", std::move(offsets)}};
  }

  std::vector<State> states_;
};

Json card(const Served& served, const std::string& name) {
  Json permission = {
      {"id", "modelperm-" + name},    {"object", "model_permission"}, {"created", served.created},
      {"allow_create_engine", false}, {"allow_sampling", true},       {"allow_logprobs", true},
      {"allow_view", true},           {"organization", "*"},          {"is_blocking", false}};
  return {{"id", name},
          {"object", "model"},
          {"created", served.created},
          {"owned_by", "hadal"},
          {"root", served.model.path},
          {"parent", nullptr},
          {"max_model_len", served.model.max_context},
          {"permission", Json::array({std::move(permission)})}};
}

}  // namespace

std::unique_ptr<AnswerShape> chat_shape(OpenAIShapeOptions options) {
  return std::make_unique<ChatShape>(std::move(options));
}
std::unique_ptr<AnswerShape> completion_shape(OpenAIShapeOptions options) {
  return std::make_unique<CompletionShape>(std::move(options));
}

std::string model_list(const Served& served) {
  Json data = Json::array();
  for (const std::string& name : served.options.names) data.push_back(card(served, name));
  return dumped({{"object", "list"}, {"data", std::move(data)}});
}
std::string model_card(const Served& served, const std::string& name) {
  return dumped(card(served, name));
}

std::string tokenize_body(const Served& served, const std::vector<int32_t>& ids, bool strings) {
  Json json = {{"count", ids.size()}, {"max_model_len", served.model.max_context}, {"tokens", ids}};
  json["token_strs"] = nullptr;
  if (strings) {
    json["token_strs"] = Json::array();
    for (int32_t id : ids) json["token_strs"].push_back(token_text(served.tokenizer, id));
  }
  return dumped(json);
}
std::string detokenize_body(const std::string& text) { return dumped({{"prompt", text}}); }
std::string tokenizer_info_body(const Served& served) {
  const ModelInfo& model = served.model;
  Json json = {{"tokenizer_class", "hadal"}, {"add_bos_token", false}, {"chat_template", nullptr}};
  json["bos_token"] = served.tokenizer.token_bytes(static_cast<int32_t>(model.bos_id));
  json["eos_token"] = nullptr;
  if (!model.eos_ids.empty())
    json["eos_token"] = served.tokenizer.token_bytes(static_cast<int32_t>(model.eos_ids[0]));
  json["pad_token"] = json["eos_token"];
  json["model_max_length"] = model.max_context;
  return dumped(json);
}
std::string version_body(const std::string& version) { return dumped({{"version", version}}); }

}  // namespace hadal
