// Messages to token ids: the chat encoding of a checkpoint joined with its tokenizer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flags.h"
#include "text/chat.h"
#include "text/tokenizer.h"

namespace hadal {

struct ChatPrompt {
  std::string text;
  std::vector<int32_t> ids;
  bool opens_reasoning = false;  // the answer begins inside <think>
};

// The chat options of `run`, `chat` and `render`.
struct ChatFlags {
  bool thinking = false;
  bool parse_special = false;
  std::string format;  // "": as the checkpoint's files say
  std::string reasoning_effort;

  void declare(Flags& flags);
};

class ChatEncoder {
 public:
  // Reads what tells the format, and the fixed texts, from the checkpoint's folder. `tokenizer`
  // must outlive this.
  static Result<ChatEncoder> open(const std::string& model, const ChatFlags& flags,
                                  const Tokenizer& tokenizer);

  // Warns, once, when a fixed text of the prompt is not the official one.
  Result<ChatPrompt> encode(const Conversation& conversation);

 private:
  ChatEncoder(ChatOptions options, PromptStrings strings, const Tokenizer& tokenizer)
      : options_(std::move(options)), strings_(std::move(strings)), tokenizer_(&tokenizer) {}

  ChatOptions options_;
  PromptStrings strings_;
  const Tokenizer* tokenizer_;
  bool warned_ = false;
};

}  // namespace hadal
