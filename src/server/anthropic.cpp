// /v1/messages: blocks to messages. Tool results become tool messages of their own, in their place.
#include "server/anthropic.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/anthropic_shape.h"
#include "server/chat_request.h"

namespace hadal {
namespace {

using Kind = JsonValue::Kind;
using Tools = ChatRequest::Tools;

// It differs from request to request, and nothing behind it could be reused.
constexpr std::string_view kBilling = "x-anthropic-billing-header";

Message message_of(Role role) {
  Message m;
  m.role = role;
  return m;
}

JsonValue text_value(const std::string& text) { return {Kind::kString, text, {}}; }

// The blocks of a content field: a string is one text block.
std::vector<JsonValue> blocks_of(Fields& f, const std::string& where, const JsonValue* content) {
  if (!content) return {};
  if (content->kind == Kind::kString) {
    return {JsonValue{
        Kind::kObject, {}, {{"type", text_value("text")}, {"text", text_value(content->text)}}}};
  }
  std::vector<JsonValue> blocks;
  if (content->kind != Kind::kArray) f.fail(where, "must be a string or a list of blocks");
  for (const JsonMember& m : content->members) {
    if (m.value.kind != Kind::kObject) f.fail(where, "must hold objects with a \"type\"");
    blocks.push_back(m.value);
  }
  return blocks;
}

std::string text_of(Fields& f, const std::string& where, const JsonValue* content) {
  std::string text;
  for (const JsonValue& block : blocks_of(f, where, content)) {
    Fields b(block, where + ".");
    if (b.string("type") != "text") {
      f.fail(where, fmt::format("holds a block of type \"{}\": only text is supported here",
                                b.string("type")));
    }
    if (!text.empty()) text += "\n\n";
    text += b.string("text");
    f.join(b);
  }
  return text;
}

void read_system(Fields& f, Conversation* c) {
  Message system = message_of(Role::kSystem);
  for (const JsonValue& block : blocks_of(f, "system", f.find("system"))) {
    Fields b(block, "system.");
    std::string text = b.string("text");
    if (b.string("type") != "text") b.fail("type", "must be text");
    if (!text.starts_with(kBilling)) system.content.push_back({"text", text});
    f.join(b);
  }
  if (!system.content.empty()) c->messages.push_back(std::move(system));
}

class MessageReader {
 public:
  MessageReader(Fields& f, Conversation* c) : f_(f), c_(c) {}

  void read(const JsonValue& v, size_t i) {
    where_ = fmt::format("messages[{}]", i);
    if (v.kind != Kind::kObject) return f_.fail(where_, "must be an object");
    Fields m(v, where_ + ".");
    std::string role = m.string("role");
    if (role != "user" && role != "assistant" && role != "system")
      m.fail("role", fmt::format("is \"{}\": it must be user or assistant", role));
    current_ = message_of(role == "assistant" ? Role::kAssistant
                          : role == "user"    ? Role::kUser
                                              : Role::kSystem);
    used_ = false;
    for (const JsonValue& block : blocks_of(f_, where_ + ".content", m.find("content")))
      read_block(block);
    // A message of tool results alone is no user message beside.
    if (used_ || c_->messages.empty() || c_->messages.back().role != Role::kTool) flush();
    f_.join(m);
  }

 private:
  void flush() {
    c_->messages.push_back(current_);
    current_ = message_of(current_.role);
    used_ = false;
  }

  void read_block(const JsonValue& block) {
    Fields b(block, where_ + ".content.");
    std::string type = b.string("type");
    bool assistant = current_.role == Role::kAssistant;
    if (type == "text") {
      current_.content.push_back({"text", b.string("text")});
      used_ = true;
    } else if (type == "thinking" && assistant) {
      current_.reasoning += b.string("thinking");
      used_ = true;
    } else if (type == "redacted_thinking" && assistant) {
      used_ = true;
    } else if (type == "tool_use" && assistant) {
      const JsonValue* input = b.object("input");
      current_.tool_calls.push_back(
          {b.string("id"), b.string("name"), input ? python_json(*input) : "{}"});
      if (b.string("name").empty()) b.fail("name", "is missing");
      used_ = true;
    } else if (type == "tool_result" && !assistant) {
      if (used_) flush();
      Message result = message_of(Role::kTool);
      result.tool_call_id = b.string("tool_use_id");
      result.content.push_back({"text", text_of(f_, where_ + ".content", b.find("content"))});
      c_->messages.push_back(std::move(result));
    } else {
      b.fail("type", fmt::format("is \"{}\", which is not supported here", type));
    }
    f_.join(b);
  }

  Fields& f_;
  Conversation* c_;
  std::string where_;
  Message current_;
  bool used_ = false;  // something belongs to current_
};

void read_tools(Fields& f, ChatRequest* r) {
  const JsonValue* tools = f.find("tools");
  if (tools && tools->kind != Kind::kArray) f.fail("tools", "must be a list");
  for (size_t i = 0; tools && i < tools->members.size(); ++i) {
    const JsonValue& tool = tools->members[i].value;
    if (tool.kind != Kind::kObject) return f.fail("tools", "must hold objects");
    Fields t(tool, fmt::format("tools[{}].", i));
    std::string type = t.string("type", "custom");
    if (type != "custom" && type != "function")
      t.fail("type", fmt::format("is \"{}\": this server has no tools of its own", type));
    if (t.string("name").empty()) t.fail("name", "is missing");
    const JsonValue* schema = t.object("input_schema");
    JsonValue function{Kind::kObject, {}, {}};
    function.members.push_back({"name", text_value(t.string("name"))});
    if (t.has("description"))
      function.members.push_back({"description", text_value(t.string("description"))});
    if (schema) function.members.push_back({"parameters", *schema});
    r->conversation.tools.push_back(python_json(function));
    f.join(t);
  }
  r->tools = r->conversation.tools.empty() ? Tools::kNone : Tools::kAuto;
  const JsonValue* choice = f.object("tool_choice");
  if (!choice) return;
  Fields c(*choice, "tool_choice.");
  std::string type = c.string("type");
  r->parallel_calls = !c.boolean("disable_parallel_tool_use", false);
  if (type == "none") {
    r->conversation.tools.clear();
    r->tools = Tools::kNone;
  } else if (type == "any" || type == "tool") {
    if (r->tools == Tools::kNone) c.fail("type", fmt::format("is {}, which needs \"tools\"", type));
    r->tools = type == "any" ? Tools::kRequired : Tools::kNamed;
    r->named_tool = c.string("name");
    if (type == "tool" && r->named_tool.empty()) c.fail("name", "is missing");
  } else if (type != "auto") {
    c.fail("type", "must be auto, any, tool or none");
  }
  f.join(c);
}

void read_thinking(Fields& f, ChatRequest* r) {
  if (const JsonValue* thinking = f.object("thinking")) {
    Fields t(*thinking, "thinking.");
    std::string type = t.string("type");
    if (type != "enabled" && type != "disabled" && type != "adaptive")
      t.fail("type", "must be enabled, disabled or adaptive");
    r->thinking = type != "disabled";
    f.join(t);
  }
  if (const JsonValue* config = f.object("output_config")) {
    Fields c(*config, "output_config.");
    r->effort = c.string("effort");
    if (c.has("format")) c.fail("format", "is not available: this server enforces no schema");
    f.join(c);
  }
}

ChatRequest read_request(Fields& f, bool counts_only) {
  ChatRequest r;
  read_system(f, &r.conversation);
  const JsonValue* list = f.find("messages");
  if (!list || list->kind != Kind::kArray) {
    f.fail("messages", "is missing: give a list");
    return r;
  }
  MessageReader reader(f, &r.conversation);
  for (size_t i = 0; i < list->members.size(); ++i) reader.read(list->members[i].value, i);
  // An assistant message at the end is to be continued.
  if (!r.conversation.messages.empty() && r.conversation.messages.back().role == Role::kAssistant &&
      r.conversation.messages.back().tool_calls.empty()) {
    r.conversation.messages.back().without_eos = true;
  }
  read_tools(f, &r);
  read_thinking(f, &r);
  r.limit = f.integer("max_tokens", 1, 1ll << 40);
  if (!r.limit && !counts_only)
    f.fail("max_tokens", "is missing: give the most tokens to generate");
  return r;
}

}  // namespace

void messages(Served& served, std::shared_ptr<Exchange> exchange, const JsonValue& body) {
  Fields f(body);
  check_model(f, served);
  ChatRequest request = read_request(f, false);
  Ask ask = read_generation(f, served);
  ask.options.stop = f.strings("stop_sequences");
  bool stream = f.boolean("stream", false);
  if (!f.error()) encode_chat_request(f, served, request, &ask);
  if (f.error()) return reply_error(*exchange, *f.error(), Dialect::kAnthropic);
  std::string name = f.string("model");
  std::vector<Ask> asks;
  asks.push_back(std::move(ask));
  answer(served, std::move(exchange),
         message_shape(name.empty() ? served.options.names.front() : name), std::move(asks),
         stream);
}

void count_tokens(Served& served, std::shared_ptr<Exchange> exchange, const JsonValue& body) {
  Fields f(body);
  check_model(f, served);
  ChatRequest request = read_request(f, true);
  std::vector<int32_t> ids;
  if (!f.error()) ids = chat_prompt(f, served, request).ids;
  if (f.error()) return reply_error(*exchange, *f.error(), Dialect::kAnthropic);
  exchange->reply(200, "application/json", token_count_body(ids.size()));
}

}  // namespace hadal
