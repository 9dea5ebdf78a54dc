// encode_chat: the checks and conversions that hold for every release, and the pieces they share.
#include "text/chat.h"

#include <fmt/format.h>

#include "text/chat_encoders.h"

namespace hadal {
namespace {

const char* role_name(Role role) {
  switch (role) {
    case Role::kSystem:
      return "system";
    case Role::kDeveloper:
      return "developer";
    case Role::kUser:
      return "user";
    case Role::kAssistant:
      return "assistant";
    case Role::kTool:
      return "tool";
    case Role::kLatestReminder:
      return "latest_reminder";
  }
  return "";
}

bool is_v4(ChatFormat format) {
  return format == ChatFormat::kV4Preview || format == ChatFormat::kV4_0731;
}

// Specs V4 8.2 (effort table); the releases before V4 have one level only.
Status check_effort(const ChatOptions& options) {
  const std::string& effort = options.reasoning_effort;
  bool later = options.format == ChatFormat::kV4_0731;
  if (effort.empty() || (is_v4(options.format) && (effort == "high" || effort == "max")) ||
      (later && effort == "low")) {
    return {};
  }
  std::string levels = later ? "low, high or max" : "high or max";
  return Error{fmt::format("{} has no reasoning effort \"{}\": {}leave reasoning_effort out.",
                           chat_format_title(options.format), effort,
                           is_v4(options.format) ? "use " + levels + ", or " : "")};
}

Status check_message(const std::vector<Message>& messages, size_t i, ChatFormat format) {
  const Message& m = messages[i];
  const char* title = chat_format_title(format);
  if (m.role == Role::kLatestReminder && !is_v4(format)) {
    return Error{
        fmt::format("{}: {} has no role latest_reminder; put the text into a user message.",
                    message_name(messages, i), title)};
  }
  if (!m.task.empty() && !is_v4(format)) {
    return Error{
        fmt::format("{}: {} has no tasks; leave \"task\" out.", message_name(messages, i), title)};
  }
  bool announces = !m.tools.empty() || !m.response_format.empty();
  if (announces && m.role != Role::kSystem && m.role != Role::kDeveloper) {
    return Error{fmt::format(
        "{}: tools and response_format belong to a system or developer message, or to the request.",
        message_name(messages, i))};
  }
  if (!m.tools.empty() && (format == ChatFormat::kV3 || format == ChatFormat::kR1)) {
    return Error{
        fmt::format("{} has no text that announces tools: describe them in the system "
                    "message instead of \"tools\".",
                    title)};
  }
  if (!m.response_format.empty() && format < ChatFormat::kV32) {
    return Error{
        fmt::format("{} has no text for a response format: describe it in the system "
                    "message instead of \"response_format\".",
                    title)};
  }
  if (!m.tool_calls.empty() && m.role != Role::kAssistant) {
    return Error{fmt::format("{}: only an assistant message can have tool_calls.",
                             message_name(messages, i))};
  }
  return {};
}

std::vector<Message> with_request_fields(const Conversation& conversation) {
  std::vector<Message> messages = conversation.messages;
  if (conversation.tools.empty() && conversation.response_format.empty()) return messages;
  if (messages.front().role != Role::kSystem) {
    Message system;
    system.role = Role::kSystem;
    messages.insert(messages.begin(), system);
  }
  Message& system = messages.front();
  system.tools.insert(system.tools.end(), conversation.tools.begin(), conversation.tools.end());
  if (system.response_format.empty()) system.response_format = conversation.response_format;
  return messages;
}

Result<Prompt> encode(const EncodeInput& in) {
  switch (in.options.format) {
    case ChatFormat::kV3:
    case ChatFormat::kR1:
      return encode_v3(in);
    case ChatFormat::kV31:
      return encode_v31(in);
    case ChatFormat::kV32:
      return encode_v32(in);
    case ChatFormat::kV4Preview:
    case ChatFormat::kV4_0731:
      return encode_v4(in);
  }
  check_failed(__FILE__, __LINE__, "format", std::to_string(int(in.options.format)));
}

}  // namespace

ChatOptions options_for(const Conversation& conversation, ChatOptions defaults) {
  defaults.thinking = conversation.thinking.value_or(defaults.thinking);
  defaults.drop_thinking = conversation.drop_thinking.value_or(defaults.drop_thinking);
  defaults.add_generation_prompt =
      conversation.add_generation_prompt.value_or(defaults.add_generation_prompt);
  defaults.reasoning_effort = conversation.reasoning_effort.value_or(defaults.reasoning_effort);
  return defaults;
}

std::string Prompt::text() const {
  std::string all;
  for (const Segment& s : segments) all += s.text;
  return all;
}

void Prompt::add_control(std::string_view token) { segments.push_back({std::string(token), true}); }

void Prompt::add_text(std::string_view text) {
  if (text.empty()) return;
  if (segments.empty() || segments.back().control) segments.push_back({{}, false});
  segments.back().text += text;
}

void Prompt::add_markup(std::string_view text, const std::vector<std::string_view>& tokens) {
  while (!text.empty()) {
    size_t first = text.npos;
    std::string_view found;
    for (std::string_view token : tokens) {
      size_t at = text.find(token);
      if (at < first) first = at, found = token;
    }
    add_text(text.substr(0, first));
    if (first == text.npos) return;
    add_control(found);
    text.remove_prefix(first + found.size());
  }
}

Result<Prompt> encode_chat(const Conversation& conversation, const ChatOptions& options,
                           const PromptStrings& strings) {
  if (conversation.messages.empty()) {
    return Error{"the conversation has no messages: give at least one."};
  }
  HADAL_TRY_STATUS(check_effort(options));
  if (options.thinking && options.format == ChatFormat::kV3) {
    return Error{"V3 has no thinking mode: turn thinking off."};
  }
  EncodeInput in{with_request_fields(conversation), options, strings};
  for (size_t i = 0; i < in.messages.size(); ++i) {
    HADAL_TRY_STATUS(check_message(in.messages, i, options.format));
  }
  HADAL_TRY(Prompt prompt, encode(in));
  if (options.parse_special) prompt.segments = {{prompt.text(), true}};
  return prompt;
}

std::string message_name(const std::vector<Message>& messages, size_t i) {
  return fmt::format("message {} ({})", i + 1, role_name(messages[i].role));
}

Result<std::string> plain_content(const std::vector<Message>& messages, size_t i) {
  std::string text;
  for (const ContentPart& part : messages[i].content) {
    if (part.type != "text") {
      return Error{fmt::format("{}: content of type \"{}\" is not supported; send text only.",
                               message_name(messages, i), part.type)};
    }
    if (&part != &messages[i].content.front()) text += "\n\n";
    text += part.text;
  }
  return text;
}

Status check_tool_results(const std::vector<Message>& messages) {
  bool called = false;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role == Role::kTool && !called) {
      return Error{
          fmt::format("{}: it must follow an assistant message with tool_calls, or "
                      "another tool message after one.",
                      message_name(messages, i))};
    }
    bool in_place = messages[i].role == Role::kUser || messages[i].role == Role::kAssistant;
    if (in_place) called = !messages[i].tool_calls.empty();
  }
  return {};
}

void add_fixed(std::string_view text, Prompt* prompt) {
  prompt->add_markup(
      text, {kDsml, kThink, kThinkEnd, kCallsBegin, kCallsEnd, kCallBegin, kCallEnd, kSep});
}

void add_replayed_calls(const Message& message, Prompt* prompt) {
  prompt->add_markup(message.tool_calls_text,
                     {kDsml, kCallsBegin, kCallsEnd, kCallBegin, kCallEnd, kSep});
}

}  // namespace hadal
