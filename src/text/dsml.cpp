// The tools block and DeepSeek's markup language for tool calls, which V3.2 and V4 share but for
// the name of the outer tag (specs V3.2 8.4, V4 8.2).
#include <fmt/format.h>

#include "text/chat_encoders.h"
#include "text/json_text.h"

namespace hadal {
namespace {

void add_dsml_parameter(std::string_view key, bool is_string, std::string_view value,
                        Prompt* prompt) {
  prompt->add_text("<");
  prompt->add_control(kDsml);
  prompt->add_text(fmt::format("parameter name=\"{}\" string=\"{}\">{}</", key, is_string, value));
  prompt->add_control(kDsml);
  prompt->add_text("parameter>");
}

Status add_dsml_invoke(const ToolCall& call, bool lenient, Prompt* prompt) {
  auto parsed =
      parse_json(call.arguments, fmt::format("the arguments of the call of \"{}\"", call.name));
  bool object = parsed.ok() && parsed.value().kind == JsonValue::Kind::kObject;
  if (!object && !lenient) {
    if (!parsed.ok()) return Error{parsed.error().message};
    return Error{fmt::format("the arguments of the call of \"{}\" must be a JSON object, not {}.",
                             call.name, parsed.value().kind_name())};
  }
  prompt->add_text("<");
  prompt->add_control(kDsml);
  prompt->add_text(fmt::format("invoke name=\"{}\">\n", call.name));
  if (!object) {
    add_dsml_parameter("arguments", true, call.arguments, prompt);
  } else {
    const auto& members = parsed.value().members;
    for (size_t i = 0; i < members.size(); ++i) {
      if (i > 0) prompt->add_text("\n");
      const JsonValue& v = members[i].value;
      bool is_string = v.kind == JsonValue::Kind::kString;
      add_dsml_parameter(members[i].key, is_string, is_string ? v.text : python_json(v), prompt);
    }
  }
  prompt->add_text("\n</");
  prompt->add_control(kDsml);
  prompt->add_text("invoke>");
  return {};
}

}  // namespace

Status add_tools_and_format(const Message& message, const PromptStrings& strings, Prompt* prompt) {
  if (!message.tools.empty()) {
    prompt->add_text("\n\n");
    add_fixed(strings.tools.head, prompt);
    for (size_t i = 0; i < message.tools.size(); ++i) {
      HADAL_TRY(JsonValue tool, parse_json(message.tools[i], fmt::format("tool {}", i + 1)));
      if (i > 0) prompt->add_text("\n");
      prompt->add_text(python_json(tool));
    }
    add_fixed(strings.tools.tail, prompt);
    prompt->own_wording |= strings.tools.own;
  }
  if (!message.response_format.empty()) {
    HADAL_TRY(JsonValue schema, parse_json(message.response_format, "response_format"));
    prompt->add_text("\n\n");
    add_fixed(strings.response_format.head, prompt);
    prompt->add_text(python_json(schema));
    add_fixed(strings.response_format.tail, prompt);
    prompt->own_wording |= strings.response_format.own;
  }
  return {};
}

Status add_dsml_calls(const Message& message, std::string_view block, bool lenient,
                      Prompt* prompt) {
  if (!message.tool_calls_text.empty()) {
    add_replayed_calls(message, prompt);
    return {};
  }
  if (message.tool_calls.empty()) return {};
  prompt->add_text("\n\n<");
  prompt->add_control(kDsml);
  prompt->add_text(fmt::format("{}>\n", block));
  for (const ToolCall& call : message.tool_calls) {
    HADAL_TRY_STATUS(add_dsml_invoke(call, lenient, prompt));
    prompt->add_text("\n");
  }
  prompt->add_text("</");
  prompt->add_control(kDsml);
  prompt->add_text(fmt::format("{}>", block));
  return {};
}

}  // namespace hadal
