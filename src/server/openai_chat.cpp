// /v1/chat/completions: its fields to a ChatRequest.
#include <fmt/format.h>

#include <algorithm>

#include "server/chat_request.h"
#include "server/openai.h"
#include "server/openai_shapes.h"

namespace hadal {

using Tools = ChatRequest::Tools;
using Kind = JsonValue::Kind;

namespace {

// "none", "auto", "required" or {"type": "function", "function": {"name"}}.
void read_tool_choice(Fields& f, ChatRequest* r) {
  bool any = !r->conversation.tools.empty();
  r->tools = any ? Tools::kAuto : Tools::kNone;
  r->parallel_calls = f.boolean("parallel_tool_calls", true);
  const JsonValue* choice = f.find("tool_choice");
  if (!choice) return;
  if (choice->kind == Kind::kString && (choice->text == "none" || choice->text == "auto")) {
    if (choice->text == "none") {
      // The model must not know of what it must not use.
      r->conversation.tools.clear();
      r->tools = Tools::kNone;
    }
    return;
  }
  if (!any) return f.fail("tool_choice", "needs \"tools\"");
  if (choice->kind == Kind::kString && choice->text == "required") {
    r->tools = Tools::kRequired;
    return;
  }
  const JsonValue* function = choice->find("function");
  const JsonValue* name = function ? function->find("name") : choice->find("name");
  if (!name || name->kind != Kind::kString)
    return f.fail("tool_choice",
                  "must be none, auto, required or {\"type\": \"function\", "
                  "\"function\": {\"name\": ...}}");
  r->tools = Tools::kNamed;
  r->named_tool = name->text;
  bool known = std::ranges::any_of(r->conversation.tools, [&](const std::string& tool) {
    auto json = parse_json(tool, "tool");
    const JsonValue* n = json.ok() ? json.value().find("name") : nullptr;
    return n && n->text == name->text;
  });
  if (!known)
    f.fail("tool_choice", fmt::format("names \"{}\", which is not in \"tools\"", name->text));
}

// Explicit fields first, then chat_template_kwargs, then the server's default.
void read_thinking(Fields& f, ChatRequest* r) {
  const JsonValue* thinking = f.find("thinking");
  if (thinking && thinking->kind == Kind::kObject) {
    Fields t(*thinking, "thinking.");
    std::string type = t.string("type", "enabled");
    if (type != "enabled" && type != "disabled" && type != "adaptive" && type != "auto")
      t.fail("type", "must be enabled or disabled");
    f.join(t);
    r->thinking = type != "disabled";
  } else {
    r->thinking = f.boolean("thinking");
  }
  r->effort = f.string("reasoning_effort");
  const JsonValue* kwargs = f.object("chat_template_kwargs");
  if (!kwargs) return;
  Fields k(*kwargs, "chat_template_kwargs.");
  for (const char* name : {"thinking", "enable_thinking"}) {
    auto value = k.boolean(name);
    if (!r->thinking && r->effort.empty()) r->thinking = value;
  }
  std::string effort = k.string("reasoning_effort");
  if (r->effort.empty()) r->effort = effort;
  f.join(k);
}

// What the prompt can ask for is there; what only a mask could promise is not.
void check_response_format(Fields& f) {
  const JsonValue* format = f.object("response_format");
  if (!format) return;
  Fields r(*format, "response_format.");
  std::string type = r.string("type");
  if (type != "text" && type != "json_object" && type != "json_schema")
    r.fail("type", "must be text, json_object or json_schema");
  const JsonValue* schema = r.object("json_schema");
  if (schema) {
    Fields s(*schema, "response_format.json_schema.");
    if (s.boolean("strict", false))
      s.fail("strict",
             "is not available: this server puts the schema into the prompt and does "
             "not enforce it; leave strict out");
    r.join(s);
  }
  f.join(r);
}

void read_logprobs(Fields& f, Ask* ask) {
  bool wanted = f.boolean("logprobs", false);
  auto top = f.integer("top_logprobs", 0, kMaxLogprobs);
  if (top.value_or(0) > 0 && !wanted) f.fail("top_logprobs", "needs \"logprobs\": true");
  if (wanted) ask->request.sampling.logprobs = static_cast<int>(top.value_or(0));
}

Conversation read_messages(Fields& f, const JsonValue& body) {
  // Switches of the prompt are read here, with the names and values that all clients use.
  JsonValue core;
  core.kind = Kind::kObject;
  for (const JsonMember& m : body.members)
    if (m.key == "messages" || m.key == "tools" || m.key == "response_format")
      core.members.push_back(m);
  auto conversation = read_conversation(core, "the request");
  if (conversation.ok()) return std::move(conversation).value();
  f.fail_with({400, conversation.error().message, "messages"});
  return {};
}

}  // namespace

ChatRequest read_chat_request(Fields& f, const JsonValue& body) {
  ChatRequest r;
  r.conversation = read_messages(f, body);
  read_tool_choice(f, &r);
  read_thinking(f, &r);
  check_response_format(f);
  r.add_generation_prompt = f.boolean("add_generation_prompt", true);
  bool goes_on = f.boolean("continue_final_message", false);
  if (goes_on && !r.conversation.messages.empty()) {
    Message& last = r.conversation.messages.back();
    if (last.role != Role::kAssistant)
      f.fail("continue_final_message", "needs an assistant message at the end");
    last.without_eos = true;
  }
  auto old_limit = f.integer("max_tokens", 1, 1ll << 40);
  r.limit = f.integer("max_completion_tokens", 1, 1ll << 40);
  if (!r.limit) r.limit = old_limit;
  return r;
}

void chat_completions(Served& served, std::shared_ptr<Exchange> exchange, const JsonValue& body) {
  Fields f(body);
  check_model(f, served);
  ChatRequest request = read_chat_request(f, body);
  Ask ask = read_generation(f, served);
  read_logprobs(f, &ask);
  int64_t n = f.integer("n", 1, 1, 128);
  bool stream = f.boolean("stream", false);
  OpenAIShapeOptions shape;
  const JsonValue* stream_options = f.object("stream_options");
  if (stream_options && !stream) f.fail("stream_options", "needs \"stream\": true");
  if (stream_options) {
    Fields s(*stream_options, "stream_options.");
    shape.include_usage = s.boolean("include_usage", false);
    shape.continuous_usage = s.boolean("continuous_usage_stats", false);
    f.join(s);
  }
  shape.include_reasoning = f.boolean("include_reasoning", true);
  if (!f.error()) encode_chat_request(f, served, request, &ask);
  if (f.error()) return reply_error(*exchange, *f.error(), Dialect::kOpenAI);
  shape.tokenizer = &served.tokenizer;
  shape.id = random_id("chatcmpl-");
  shape.model = served.options.names.front();
  shape.created = now_seconds();
  shape.per_prompt = static_cast<int>(n);
  shape.logprobs = ask.request.sampling.logprobs >= 0;
  shape.named_call = request.tools == Tools::kNamed;
  std::vector<Ask> asks;
  for (int64_t j = 0; j < n; ++j) asks.push_back(choice_of(ask, j));
  answer(served, std::move(exchange), chat_shape(std::move(shape)), std::move(asks), stream);
}

}  // namespace hadal
