// What went wrong with a request, in the words and shapes of the two APIs.
#pragma once

#include <string>

namespace hadal {

struct ApiError {
  int status = 400;
  std::string message;
  std::string param = {};  // the field, where one is to blame
  std::string code = {};   // a named code; "": the status as a number
};

enum class Dialect { kOpenAI, kAnthropic };

// {"error": {"message", "type", "param", "code"}}, or {"type": "error", "error": {"type",
// "message"}}.
std::string error_body(const ApiError& error, Dialect dialect);

// The status as this dialect sends it (Anthropic: 529 where others say 503).
int error_status(const ApiError& error, Dialect dialect);

}  // namespace hadal
