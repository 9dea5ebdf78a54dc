// OpenAI's answers: chat completions, completions, model cards, tokens. As its own and vLLM's
// clients read them; both names of reasoning are written.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/answering.h"

namespace hadal {

struct OpenAIShapeOptions {
  const Tokenizer* tokenizer = nullptr;
  std::string id, model;  // "chatcmpl-..." or "cmpl-..."
  int64_t created = 0;
  int per_prompt = 1;  // n
  bool include_usage = false, continuous_usage = false;
  bool logprobs = false;
  // Chat.
  bool include_reasoning = true;
  bool named_call = false;  // then finish_reason stays "stop", as with OpenAI
  // Completions.
  bool echo = false;
};

std::unique_ptr<AnswerShape> chat_shape(OpenAIShapeOptions options);
std::unique_ptr<AnswerShape> completion_shape(OpenAIShapeOptions options);

// {"object": "list", "data": [...]}, and one card of it.
std::string model_list(const Served& served);
std::string model_card(const Served& served, const std::string& name);
// {"count", "max_model_len", "tokens", "token_strs"}
std::string tokenize_body(const Served& served, const std::vector<int32_t>& ids, bool strings);
// {"prompt"}
std::string detokenize_body(const std::string& text);
// Names of the special tokens, as evaluation programs ask for them.
std::string tokenizer_info_body(const Served& served);
std::string version_body(const std::string& version);

}  // namespace hadal
