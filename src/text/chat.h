// Chat messages to prompt text, per release: the structs that every dialect of request maps to,
// and the encoders behind one function (specs V3.2 8.2-8.4, V4 8.2). Nothing here knows tokens:
// a prompt is a list of pieces, and only those that the encoder made are control tokens.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/prompt_strings.h"

namespace hadal {

struct JsonValue;

enum class Role { kSystem, kDeveloper, kUser, kAssistant, kTool, kLatestReminder };

struct ContentPart {
  std::string type = "text";  // other types (images) have no text
  std::string text;
};

struct ToolCall {
  std::string id, name;
  std::string arguments;  // JSON text as the client sent it; an object, or (V4) anything
};

struct Message {
  Role role = Role::kUser;
  std::vector<ContentPart> content;  // none: null content
  std::string reasoning;             // assistant
  std::vector<ToolCall> tool_calls;  // assistant
  // The model's own bytes for tool_calls, from the blank line before the block to its end. They
  // take the place of the rendered block, so that the prompt continues what the model wrote.
  std::string tool_calls_text;
  std::string tool_call_id;        // tool
  std::vector<std::string> tools;  // system, developer: JSON text of each tool's function object
  std::string response_format;     // system, developer: JSON text, printed as it is; empty: none
  std::string task;                // V4's internal tasks: action, query, title, ...
  bool without_eos = false;        // assistant: the turn is to be continued (wo_eos, prefix)
};

struct Conversation {
  std::vector<Message> messages;
  // Tools and response format of the whole request: they join those of the system message in
  // front, or an empty one that is put there.
  std::vector<std::string> tools;
  std::string response_format;
  // What the request says about the options below, if it does.
  std::optional<bool> thinking, drop_thinking, add_generation_prompt;
  std::optional<std::string> reasoning_effort;
};

struct ChatOptions {
  ChatFormat format = ChatFormat::kV4Preview;
  bool thinking = false;         // V3 has no thinking mode, R1 no other
  bool drop_thinking = true;     // V3.2, V4: forget the reasoning of earlier turns
  std::string reasoning_effort;  // V4: low (not the preview), high, max; empty: the default
  bool add_generation_prompt = true;
  bool parse_special = false;  // read special tokens in the messages' text as control tokens
};

// `defaults` with what the conversation's own fields say in place of it.
ChatOptions options_for(const Conversation& conversation, ChatOptions defaults);

struct Segment {
  std::string text;
  bool control = false;  // one special token's text (or, with parse_special, the whole prompt)
};

// Tokenise as one text in which special tokens are recognised inside control segments only. No two
// others are neighbours, so that BPE sees what the official encoder's one string would show it.
struct Prompt {
  std::vector<Segment> segments;
  bool opens_reasoning = false;  // the model continues inside a <think> that the prompt opened
  bool own_wording = false;      // a text of PromptStrings was used that is not the official one

  std::string text() const;
  void add_control(std::string_view token);
  void add_text(std::string_view text);
  // Text in which the given special tokens are control tokens.
  void add_markup(std::string_view text, const std::vector<std::string_view>& tokens);
};

Result<Prompt> encode_chat(const Conversation& conversation, const ChatOptions& options,
                           const PromptStrings& strings);

// Message files and request bodies: a list of messages, or an object {messages, tools,
// response_format, thinking, reasoning_effort, drop_thinking, add_generation_prompt}, as OpenAI
// and DeepSeek name them; other fields are ignored. `path` opens the sentence of an error.
// response_format of the object: {"type": "text"} is none, "json_schema" stands for its schema.
Result<Conversation> parse_conversation(const std::string& json, const std::string& path);
// The same of what has been parsed already.
Result<Conversation> read_conversation(const JsonValue& root, const std::string& path);

}  // namespace hadal
