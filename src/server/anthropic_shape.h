// Anthropic's answers: a message of blocks, or the stream of events that builds one.
#pragma once

#include <memory>
#include <string>

#include "server/answering.h"

namespace hadal {

// `model`: the name to echo.
std::unique_ptr<AnswerShape> message_shape(std::string model);
// {"input_tokens": n}
std::string token_count_body(size_t tokens);

}  // namespace hadal
