// The neutral chat request that both dialects map to, and its way to a prompt: thinking switches
// resolved once, and the same answer given to the encoder and to the parser of the model's text.
#pragma once

#include <optional>
#include <string>

#include "server/generation_fields.h"

namespace hadal {

struct ChatRequest {
  enum class Tools { kNone, kAuto, kRequired, kNamed };
  Conversation conversation;
  Tools tools = Tools::kNone;
  std::string named_tool;
  bool parallel_calls = true;
  std::optional<bool> thinking;  // as the request says, if it does
  std::string effort;            // none, minimal, low, medium, high, xhigh, max; "": not said
  std::optional<int64_t> limit;  // tokens of the answer
  bool add_generation_prompt = true;
};

// The request of an OpenAI chat body: messages, tools, tool_choice, thinking switches, limits.
ChatRequest read_chat_request(Fields& fields, const JsonValue& body);

// Fills the prompt and the options of `ask`. Errors go to `fields`.
void encode_chat_request(Fields& fields, Served& served, ChatRequest& request, Ask* ask);

// The prompt alone, for counting and /tokenize.
struct ChatPromptIds {
  std::vector<int32_t> ids;
  bool opens_reasoning = false;
  // How a forced call begins: at the end of the prompt, or to be forced where reasoning ends.
  std::string opening;
  std::vector<int32_t> forced;
};
ChatPromptIds chat_prompt(Fields& fields, Served& served, ChatRequest& request);

}  // namespace hadal
