// Message files and request bodies to Conversation, strict about types: a wrong one is named with
// its place, never guessed at.
#include <fmt/format.h>

#include "text/chat.h"
#include "text/json_text.h"

namespace hadal {
namespace {

using Kind = JsonValue::Kind;

Error wrong(const std::string& where, const char* expected, const JsonValue& found) {
  return Error{fmt::format("{} must be {}, not {}.", where, expected, found.kind_name())};
}

// Absent and null leave `out` as it is.
Status read_string(const JsonValue& object, const char* key, const std::string& where,
                   std::string* out) {
  const JsonValue* v = object.find(key);
  if (!v) return {};
  if (v->kind != Kind::kString) return wrong(where + "." + key, "a string", *v);
  *out = v->text;
  return {};
}

Result<std::optional<bool>> read_bool(const JsonValue& object, const char* key,
                                      const std::string& where) {
  const JsonValue* v = object.find(key);
  if (!v) return std::optional<bool>();
  if (v->kind != Kind::kTrue && v->kind != Kind::kFalse) {
    return wrong(where + "." + key, "true or false", *v);
  }
  return std::optional<bool>(v->kind == Kind::kTrue);
}

Result<std::vector<ContentPart>> read_content(const JsonValue& message, const std::string& where) {
  std::vector<ContentPart> parts;
  const JsonValue* content = message.find("content");
  if (!content) return parts;
  if (content->kind == Kind::kString) {
    parts.push_back({"text", content->text});
    return parts;
  }
  if (content->kind != Kind::kArray) {
    return wrong(where + ".content", "a string, null or a list of parts", *content);
  }
  for (size_t i = 0; i < content->members.size(); ++i) {
    const JsonValue& v = content->members[i].value;
    std::string place = fmt::format("{}.content[{}]", where, i);
    if (v.kind != Kind::kObject) return wrong(place, "an object with \"type\"", v);
    ContentPart part{"", ""};
    HADAL_TRY_STATUS(read_string(v, "type", place, &part.type));
    if (part.type.empty()) return Error{fmt::format("{} needs a \"type\".", place)};
    if (part.type == "text") {
      if (!v.find("text")) return Error{fmt::format("{} needs a \"text\".", place)};
      HADAL_TRY_STATUS(read_string(v, "text", place, &part.text));
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

Result<std::vector<ToolCall>> read_tool_calls(const JsonValue& message, const std::string& where) {
  std::vector<ToolCall> calls;
  const JsonValue* list = message.find("tool_calls");
  if (!list) return calls;
  if (list->kind != Kind::kArray) return wrong(where + ".tool_calls", "a list", *list);
  for (size_t i = 0; i < list->members.size(); ++i) {
    const JsonValue& v = list->members[i].value;
    std::string place = fmt::format("{}.tool_calls[{}]", where, i);
    const JsonValue* function = v.find("function");
    if (!function || function->kind != Kind::kObject) {
      return Error{fmt::format("{} must be an object with \"function\", an object.", place)};
    }
    ToolCall call;
    HADAL_TRY_STATUS(read_string(v, "id", place, &call.id));
    HADAL_TRY_STATUS(read_string(*function, "name", place + ".function", &call.name));
    if (call.name.empty()) return Error{fmt::format("{}.function needs a \"name\".", place)};
    const JsonValue* arguments = function->find("arguments");
    if (!arguments) return Error{fmt::format("{}.function needs \"arguments\".", place)};
    if (arguments->kind == Kind::kString) {
      call.arguments = arguments->text;
    } else if (arguments->kind == Kind::kObject) {
      call.arguments = python_json(*arguments);
    } else {
      return wrong(place + ".function.arguments", "a string of JSON or an object", *arguments);
    }
    calls.push_back(std::move(call));
  }
  return calls;
}

Result<std::vector<std::string>> read_tools(const JsonValue& object, const std::string& where) {
  std::vector<std::string> tools;
  const JsonValue* list = object.find("tools");
  if (!list) return tools;
  if (list->kind != Kind::kArray) return wrong(where + ".tools", "a list", *list);
  for (size_t i = 0; i < list->members.size(); ++i) {
    const JsonValue* function = list->members[i].value.find("function");
    if (!function || function->kind != Kind::kObject) {
      return Error{
          fmt::format("{}.tools[{}] must be an object with \"function\", an object.", where, i)};
    }
    tools.push_back(python_json(*function));
  }
  return tools;
}

// An empty object counts as none, as it does in Python.
Result<std::string> read_format(const JsonValue& object, const std::string& where) {
  const JsonValue* v = object.find("response_format");
  if (!v) return std::string();
  if (v->kind != Kind::kObject) return wrong(where + ".response_format", "an object", *v);
  return v->members.empty() ? std::string() : python_json(*v);
}

// The request's own field follows OpenAI: what the prompt shows is the schema.
Result<std::string> read_request_format(const JsonValue& object, const std::string& where) {
  HADAL_TRY(std::string whole, read_format(object, where));
  if (whole.empty()) return whole;
  const JsonValue* v = object.find("response_format");
  std::string type;
  HADAL_TRY_STATUS(read_string(*v, "type", where + ".response_format", &type));
  if (type == "text") return std::string();
  if (type != "json_schema") return whole;
  const JsonValue* wrapper = v->find("json_schema");
  const JsonValue* schema = wrapper ? wrapper->find("schema") : nullptr;
  if (!schema || schema->kind != Kind::kObject) {
    return Error{
        fmt::format("{}.response_format.json_schema needs a \"schema\", an object.", where)};
  }
  return python_json(*schema);
}

Result<Role> read_role(const JsonValue& message, const std::string& where) {
  constexpr std::pair<const char*, Role> kRoles[] = {
      {"system", Role::kSystem}, {"developer", Role::kDeveloper},
      {"user", Role::kUser},     {"assistant", Role::kAssistant},
      {"tool", Role::kTool},     {"latest_reminder", Role::kLatestReminder},
  };
  std::string name;
  HADAL_TRY_STATUS(read_string(message, "role", where, &name));
  if (name.empty()) return Error{fmt::format("{} needs a \"role\".", where)};
  for (auto& [known, role] : kRoles) {
    if (name == known) return role;
  }
  return Error{
      fmt::format("{}.role is \"{}\", which is unknown: use system, developer, user, "
                  "assistant, tool or latest_reminder.",
                  where, name)};
}

Result<Message> read_message(const JsonValue& v, const std::string& where) {
  if (v.kind != Kind::kObject) return wrong(where, "an object with \"role\" and \"content\"", v);
  Message m;
  HADAL_TRY(m.role, read_role(v, where));
  HADAL_TRY(m.content, read_content(v, where));
  // Both names are in use; where a client sends both they say the same.
  HADAL_TRY_STATUS(read_string(v, "reasoning", where, &m.reasoning));
  HADAL_TRY_STATUS(read_string(v, "reasoning_content", where, &m.reasoning));
  HADAL_TRY(m.tool_calls, read_tool_calls(v, where));
  HADAL_TRY_STATUS(read_string(v, "tool_call_id", where, &m.tool_call_id));
  HADAL_TRY(m.tools, read_tools(v, where));
  HADAL_TRY(m.response_format, read_format(v, where));
  HADAL_TRY_STATUS(read_string(v, "task", where, &m.task));
  HADAL_TRY(std::optional<bool> wo_eos, read_bool(v, "wo_eos", where));
  HADAL_TRY(std::optional<bool> prefix, read_bool(v, "prefix", where));
  m.without_eos = wo_eos.value_or(false) || prefix.value_or(false);
  return m;
}

// true, false, or DeepSeek's {"type": "enabled" | "disabled"}.
Result<std::optional<bool>> read_thinking(const JsonValue& object, const std::string& where) {
  const JsonValue* v = object.find("thinking");
  if (!v || v->kind != Kind::kObject) return read_bool(object, "thinking", where);
  std::string type;
  HADAL_TRY_STATUS(read_string(*v, "type", where + ".thinking", &type));
  if (type != "enabled" && type != "disabled") {
    return Error{fmt::format("{}.thinking.type must be \"enabled\" or \"disabled\".", where)};
  }
  return std::optional<bool>(type == "enabled");
}

Status read_request(const JsonValue& object, const std::string& path, Conversation* c) {
  HADAL_TRY(c->tools, read_tools(object, path));
  HADAL_TRY(c->response_format, read_request_format(object, path));
  HADAL_TRY(c->thinking, read_thinking(object, path));
  HADAL_TRY(c->drop_thinking, read_bool(object, "drop_thinking", path));
  HADAL_TRY(c->add_generation_prompt, read_bool(object, "add_generation_prompt", path));
  if (object.find("reasoning_effort")) {
    HADAL_TRY_STATUS(read_string(object, "reasoning_effort", path, &c->reasoning_effort.emplace()));
  }
  return {};
}

}  // namespace

Result<Conversation> parse_conversation(const std::string& json, const std::string& path) {
  HADAL_TRY(JsonValue root, parse_json(json, path));
  return read_conversation(root, path);
}

Result<Conversation> read_conversation(const JsonValue& root, const std::string& path) {
  Conversation c;
  const JsonValue* list = &root;
  if (root.kind == Kind::kObject) {
    list = root.find("messages");
    if (!list) return Error{fmt::format("{} needs \"messages\", a list.", path)};
    HADAL_TRY_STATUS(read_request(root, path, &c));
  } else if (root.kind != Kind::kArray) {
    return wrong(path, "a list of messages or an object with \"messages\"", root);
  }
  if (list->kind != Kind::kArray) return wrong(path + ".messages", "a list", *list);
  for (size_t i = 0; i < list->members.size(); ++i) {
    HADAL_TRY(Message m,
              read_message(list->members[i].value, fmt::format("{}: messages[{}]", path, i)));
    c.messages.push_back(std::move(m));
  }
  return c;
}

}  // namespace hadal
