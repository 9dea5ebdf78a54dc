// Conversations written in JSON and rendered with short stand-ins for the official texts.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "text/chat.h"
#include "text/json_text.h"

namespace hadal {

inline PromptStrings stand_ins() {
  PromptStrings s;
  s.tools = {"[tools: <｜DSML｜x> <think>r</think>]\n", "\n[end of tools]\n", false};
  s.response_format = {"[format]\n", "", false};
  s.effort_a = {"[effort A]\n\n", "", false};
  s.effort_b = {"[effort B]\n\n", "", false};
  return s;
}

// `json`: what parse_conversation takes; an object may also name its "format".
inline Result<Prompt> render(const std::string& json, ChatOptions options = {}) {
  HADAL_TRY(JsonValue root, parse_json(json, "case"));
  HADAL_TRY(Conversation c, parse_conversation(json, "case"));
  if (const JsonValue* format = root.find("format")) {
    HADAL_TRY(options.format, chat_format_by_name(format->text));
  }
  return encode_chat(c, options_for(c, options), stand_ins());
}

inline std::string rendered(const std::string& json, ChatOptions options = {}) {
  auto prompt = render(json, options);
  return prompt.ok() ? prompt.value().text() : "error: " + prompt.error().message;
}

inline std::string rendered(ChatFormat format, bool thinking, const std::string& json) {
  ChatOptions options;
  options.format = format;
  options.thinking = thinking;
  return rendered(json, options);
}

}  // namespace hadal
