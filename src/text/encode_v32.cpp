// V3.2 and V3.2-Speciale: spec V3.2 section 8.4. `U` below is the last user or developer message;
// reasoning is written for the assistant turns after it only.
#include <fmt/format.h>

#include "text/chat_encoders.h"

namespace hadal {
namespace {

int last_user_of(const std::vector<Message>& messages) {
  for (int i = int(messages.size()) - 1; i >= 0; --i) {
    if (messages[i].role == Role::kUser || messages[i].role == Role::kDeveloper) return i;
  }
  return -1;
}

// With reasoning dropped, developer messages of the past vanish: a quirk of the official encoder.
std::vector<Message> drop_past(const std::vector<Message>& messages) {
  std::vector<Message> kept;
  int user = last_user_of(messages);
  for (int i = 0; i < int(messages.size()); ++i) {
    if (i >= user || messages[i].role != Role::kDeveloper) kept.push_back(messages[i]);
  }
  return kept;
}

class Encoder {
 public:
  explicit Encoder(const EncodeInput& in)
      : in_(in),
        thinking_(in.options.thinking),
        messages_(thinking_ && in.options.drop_thinking ? drop_past(in.messages) : in.messages),
        user_(last_user_of(messages_)) {}

  Result<Prompt> encode() {
    prompt_.add_control(kBos);
    for (int i = 0; i < int(messages_.size()); ++i) {
      HADAL_TRY(std::string text, plain_content(messages_, i));
      HADAL_TRY_STATUS(add_message(i, text));
    }
    return std::move(prompt_);
  }

 private:
  Status add_message(int i, const std::string& text) {
    switch (messages_[i].role) {
      case Role::kSystem:
        prompt_.add_text(text);
        return add_tools_and_format(messages_[i], in_.strings, &prompt_);
      case Role::kDeveloper:
        return add_developer(i, text);
      case Role::kAssistant:
        return add_assistant(i, text);
      case Role::kTool:
        return add_result(i, text);
      default:
        break;
    }
    prompt_.add_control(kUser);
    prompt_.add_text(text);
    open_answer(i);
    return {};
  }

  Status add_developer(int i, const std::string& text) {
    if (text.empty()) {
      return Error{fmt::format("{}: its content must not be empty.", message_name(messages_, i))};
    }
    prompt_.add_control(kUser);
    HADAL_TRY_STATUS(add_tools_and_format(messages_[i], in_.strings, &prompt_));
    prompt_.add_text("\n\n# The user's message is: " + text);
    open_answer(i);
    return {};
  }

  Status add_assistant(int i, const std::string& text) {
    const Message& m = messages_[i];
    if (thinking_ && i > user_) {
      if (m.reasoning.empty() && m.tool_calls.empty() && m.tool_calls_text.empty()) {
        return Error{fmt::format("{}: in thinking mode it needs reasoning_content or tool_calls.",
                                 message_name(messages_, i))};
      }
      prompt_.add_text(m.reasoning);
      prompt_.add_control(kThinkEnd);
    }
    prompt_.add_text(text);
    HADAL_TRY_STATUS(add_dsml_calls(m, "function_calls", /*lenient=*/false, &prompt_));
    if (!m.without_eos) prompt_.add_control(kEos);
    return {};
  }

  // Results belong to the calls of the assistant message before them by order, not by id.
  Status add_result(int i, const std::string& text) {
    int caller = i - 1;
    while (caller >= 0 && messages_[caller].role == Role::kTool) --caller;
    size_t calls = caller < 0 ? 0 : messages_[caller].tool_calls.size();
    size_t k = i - caller;
    if (calls == 0) {
      return Error{
          fmt::format("{}: it must follow an assistant message with tool_calls, or "
                      "another tool message after one.",
                      message_name(messages_, i))};
    }
    if (k > calls) {
      return Error{fmt::format("{}: the assistant message before has only {} tool_calls.",
                               message_name(messages_, i), calls)};
    }
    if (k == 1) prompt_.add_text("\n\n<function_results>");
    prompt_.add_text("\n<result>" + text + "</result>");
    if (k < calls) return {};
    prompt_.add_text("\n</function_results>");
    if (is_last(i) && !in_.options.add_generation_prompt) return {};
    prompt_.add_text("\n\n");
    add_think(i, thinking_ && i >= user_);
    return {};
  }

  void open_answer(int i) {
    if (is_last(i) && !in_.options.add_generation_prompt) return;
    prompt_.add_control(kAssistant);
    add_think(i, thinking_ && i == user_);
  }

  void add_think(int i, bool open) {
    prompt_.add_control(open ? kThink : kThinkEnd);
    prompt_.opens_reasoning = open && is_last(i);
  }

  bool is_last(int i) const { return i + 1 == int(messages_.size()); }

  const EncodeInput& in_;
  bool thinking_;
  std::vector<Message> messages_;
  int user_;
  Prompt prompt_;
};

}  // namespace

Result<Prompt> encode_v32(const EncodeInput& in) { return Encoder(in).encode(); }

}  // namespace hadal
