// The names that vLLM's and Anthropic's clients know.
#include "server/api_error.h"

#include <nlohmann/json.hpp>

namespace hadal {
namespace {

const char* openai_type(int status) {
  switch (status) {
    case 401:
      return "AuthenticationError";
    case 404:
      return "NotFoundError";
    case 405:
      return "MethodNotAllowedError";
    case 429:
      return "RateLimitError";
    case 500:
      return "InternalServerError";
    case 501:
      return "NotImplementedError";
    case 503:
      return "ServiceUnavailableError";
    default:
      return "BadRequestError";
  }
}

const char* anthropic_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 500:
      return "api_error";
    case 529:
      return "overloaded_error";
    default:
      return "invalid_request_error";
  }
}

}  // namespace

int error_status(const ApiError& error, Dialect dialect) {
  return dialect == Dialect::kAnthropic && error.status == 503 ? 529 : error.status;
}

std::string error_body(const ApiError& error, Dialect dialect) {
  using Json = nlohmann::ordered_json;
  Json body;
  int status = error_status(error, dialect);
  if (dialect == Dialect::kAnthropic) {
    body = {{"type", "error"},
            {"error", {{"type", anthropic_type(status)}, {"message", error.message}}}};
  } else {
    body = {{"error", {{"message", error.message}, {"type", openai_type(status)}}}};
    body["error"]["param"] = error.param.empty() ? Json(nullptr) : Json(error.param);
    body["error"]["code"] = error.code.empty() ? Json(status) : Json(error.code);
  }
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace hadal
