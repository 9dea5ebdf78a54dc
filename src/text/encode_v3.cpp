// V3, R1 and V3.1 (with V3.1-Terminus and V3.2-Exp): spec V3.2 sections 8.2 and 8.3. All system
// text stands in front; newer clients' developer messages count as system messages here.
#include <fmt/format.h>

#include "text/chat_encoders.h"
#include "text/json_text.h"

namespace hadal {
namespace {

bool is_system(const Message& m) { return m.role == Role::kSystem || m.role == Role::kDeveloper; }

Status add_system_texts(const EncodeInput& in, Prompt* prompt) {
  bool first = true;
  for (size_t i = 0; i < in.messages.size(); ++i) {
    if (!is_system(in.messages[i])) continue;
    HADAL_TRY(std::string text, plain_content(in.messages, i));
    if (!first) prompt->add_text("\n\n");
    prompt->add_text(text);
    first = false;
  }
  return {};
}

// The answer without the reasoning that clients leave in front of it.
std::string without_reasoning(const std::string& text, size_t think_end) {
  return think_end == text.npos ? text : text.substr(think_end + kThinkEnd.size());
}

// "### name", description, parameters; between the two parts of the tools text.
Status add_v31_tools(const EncodeInput& in, Prompt* prompt) {
  const FixedText& text = in.strings.tools;
  bool any = false;
  for (const Message& m : in.messages) {
    for (const std::string& source : m.tools) {
      HADAL_TRY(JsonValue tool, parse_json(source, "a tool"));
      const JsonValue* name = tool.find("name");
      const JsonValue* description = tool.find("description");
      const JsonValue* parameters = tool.find("parameters");
      if (!name || name->kind != JsonValue::Kind::kString) {
        return Error{fmt::format("a tool needs a \"name\" that is a string: {}.", source)};
      }
      if (!any) {
        prompt->add_text("\n\n");
        add_fixed(text.head, prompt);
      }
      any = true;
      std::string about = description ? description->kind == JsonValue::Kind::kString
                                            ? description->text
                                            : python_json(*description)
                                      : "";
      prompt->add_text(fmt::format("\n### {}\nDescription: {}\n\nParameters: {}\n", name->text,
                                   about, parameters ? python_json(*parameters) : "{}"));
    }
  }
  if (!any) return {};
  add_fixed(text.tail, prompt);
  prompt->own_wording |= text.own;
  return {};
}

void add_v3_calls(const Message& m, Prompt* prompt) {
  for (size_t k = 0; k < m.tool_calls.size(); ++k) {
    if (k == 0) {
      prompt->add_control(kCallsBegin);
    } else {
      prompt->add_text("\n");
    }
    prompt->add_control(kCallBegin);
    prompt->add_text("function");
    prompt->add_control(kSep);
    prompt->add_text(
        fmt::format("{}\n```json\n{}\n```", m.tool_calls[k].name, m.tool_calls[k].arguments));
    prompt->add_control(kCallEnd);
  }
  prompt->add_control(kCallsEnd);
}

void add_v31_calls(const Message& m, Prompt* prompt) {
  prompt->add_control(kCallsBegin);
  for (const ToolCall& call : m.tool_calls) {
    prompt->add_control(kCallBegin);
    prompt->add_text(call.name);
    prompt->add_control(kSep);
    prompt->add_text(call.arguments);
    prompt->add_control(kCallEnd);
  }
  prompt->add_control(kCallsEnd);
}

void add_answer(const Message& m, const std::string& text,
                void (*add_calls)(const Message&, Prompt*), Prompt* prompt) {
  prompt->add_text(text);
  if (!m.tool_calls_text.empty()) {
    add_replayed_calls(m, prompt);
  } else if (!m.tool_calls.empty()) {
    add_calls(m, prompt);
  }
  if (!m.without_eos) prompt->add_control(kEos);
}

// `last`: the last message that is no system text, or null.
void open_v3_answer(const EncodeInput& in, const Message* last, Prompt* prompt) {
  // After results, and where a turn is to be continued, the answer follows directly.
  if (last && (last->role == Role::kTool || last->without_eos)) return;
  // The user turn has printed the assistant's token already.
  if (!last || last->role != Role::kUser) prompt->add_control(kAssistant);
  if (in.options.format == ChatFormat::kR1) {
    prompt->add_control(kThink);
    prompt->add_text("\n");
    prompt->opens_reasoning = true;
  }
}

}  // namespace

Result<Prompt> encode_v3(const EncodeInput& in) {
  HADAL_TRY_STATUS(check_tool_results(in.messages));
  bool r1 = in.options.format == ChatFormat::kR1;
  Prompt prompt;
  prompt.add_control(kBos);
  HADAL_TRY_STATUS(add_system_texts(in, &prompt));
  bool in_results = false;
  const Message* last = nullptr;
  for (size_t i = 0; i < in.messages.size(); ++i) {
    const Message& m = in.messages[i];
    if (is_system(m)) continue;
    HADAL_TRY(std::string text, plain_content(in.messages, i));
    if (in_results && m.role != Role::kTool) {
      prompt.add_control(kOutputsEnd);
      in_results = false;
    }
    if (m.role == Role::kUser) {
      prompt.add_control(kUser);
      prompt.add_text(text);
      prompt.add_control(kAssistant);
    } else if (m.role == Role::kAssistant) {
      if (r1) text = without_reasoning(text, text.rfind(kThinkEnd));
      add_answer(m, text, add_v3_calls, &prompt);
    } else {
      if (in_results) {
        prompt.add_text("\n");
      } else {
        prompt.add_control(kOutputsBegin);
      }
      prompt.add_control(kOutputBegin);
      prompt.add_text(text);
      prompt.add_control(kOutputEnd);
      in_results = true;
    }
    last = &m;
  }
  if (in_results) prompt.add_control(kOutputsEnd);
  if (in.options.add_generation_prompt) open_v3_answer(in, last, &prompt);
  return prompt;
}

Result<Prompt> encode_v31(const EncodeInput& in) {
  HADAL_TRY_STATUS(check_tool_results(in.messages));
  Prompt prompt;
  prompt.add_control(kBos);
  HADAL_TRY_STATUS(add_system_texts(in, &prompt));
  HADAL_TRY_STATUS(add_v31_tools(in, &prompt));
  bool after_user = false;
  for (size_t i = 0; i < in.messages.size(); ++i) {
    const Message& m = in.messages[i];
    if (is_system(m)) continue;
    HADAL_TRY(std::string text, plain_content(in.messages, i));
    if (m.role == Role::kUser) {
      prompt.add_control(kUser);
      prompt.add_text(text);
    } else if (m.role == Role::kAssistant) {
      if (after_user) {
        prompt.add_control(kAssistant);
        prompt.add_control(kThinkEnd);
      }
      add_answer(m, without_reasoning(text, text.find(kThinkEnd)), add_v31_calls, &prompt);
    } else {
      prompt.add_control(kOutputBegin);
      prompt.add_text(text);
      prompt.add_control(kOutputEnd);
    }
    after_user = m.role == Role::kUser;
  }
  if (in.options.add_generation_prompt && after_user) {
    prompt.add_control(kAssistant);
    prompt.add_control(in.options.thinking ? kThink : kThinkEnd);
    prompt.opens_reasoning = in.options.thinking;
  }
  return prompt;
}

}  // namespace hadal
