// What the encoders of the releases share, behind encode_chat: the special tokens' texts, tools,
// DSML calls and the checks that hold for all.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/chat.h"

namespace hadal {

constexpr std::string_view kBos = "<｜begin▁of▁sentence｜>", kEos = "<｜end▁of▁sentence｜>";
constexpr std::string_view kUser = "<｜User｜>", kAssistant = "<｜Assistant｜>";
constexpr std::string_view kThink = "<think>", kThinkEnd = "</think>", kDsml = "｜DSML｜";
constexpr std::string_view kReminder = "<｜latest_reminder｜>";
constexpr std::string_view kCallsBegin = "<｜tool▁calls▁begin｜>";
constexpr std::string_view kCallsEnd = "<｜tool▁calls▁end｜>";
constexpr std::string_view kCallBegin = "<｜tool▁call▁begin｜>";
constexpr std::string_view kCallEnd = "<｜tool▁call▁end｜>";
constexpr std::string_view kSep = "<｜tool▁sep｜>";
constexpr std::string_view kOutputsBegin = "<｜tool▁outputs▁begin｜>";
constexpr std::string_view kOutputsEnd = "<｜tool▁outputs▁end｜>";
constexpr std::string_view kOutputBegin = "<｜tool▁output▁begin｜>";
constexpr std::string_view kOutputEnd = "<｜tool▁output▁end｜>";

// The messages to render (the request's own tools and format already in a system message), and
// everything else that the encoders need.
struct EncodeInput {
  std::vector<Message> messages;
  const ChatOptions& options;
  const PromptStrings& strings;
};

Result<Prompt> encode_v3(const EncodeInput& in);   // V3, R1
Result<Prompt> encode_v31(const EncodeInput& in);  // V3.1
Result<Prompt> encode_v32(const EncodeInput& in);
Result<Prompt> encode_v4(const EncodeInput& in);

// "message 3 (tool)": counted from 1, for sentences.
std::string message_name(const std::vector<Message>& messages, size_t i);

// Text parts joined by a blank line; other parts are refused: no release before V4 names them.
Result<std::string> plain_content(const std::vector<Message>& messages, size_t i);

// V3 to V3.1: refuses tool messages that no call precedes. System texts do not count: those
// releases move them to the front.
Status check_tool_results(const std::vector<Message>& messages);

// "\n\n" + tools block, "\n\n" + response format, where the message has them (V3.2, V4).
Status add_tools_and_format(const Message& message, const PromptStrings& strings, Prompt* prompt);

// "\n\n" + <｜DSML｜block> with one invoke per call + its closing tag; nothing without calls.
// `lenient`: arguments that are no JSON object go as one string parameter named "arguments" (V4),
// else they are an error.
Status add_dsml_calls(const Message& message, std::string_view block, bool lenient, Prompt* prompt);

// The model's own bytes in place of the rendered calls.
void add_replayed_calls(const Message& message, Prompt* prompt);

// A fixed text, its special tokens as control tokens.
void add_fixed(std::string_view text, Prompt* prompt);

}  // namespace hadal
