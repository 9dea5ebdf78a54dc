// Anthropic's endpoints: /v1/messages, as a whole and as its stream of named events, and the
// counting of tokens.
#pragma once

#include <memory>

#include "server/http.h"
#include "server/served.h"
#include "text/json_text.h"

namespace hadal {

void messages(Served& served, std::shared_ptr<Exchange> exchange, const JsonValue& body);
void count_tokens(Served& served, std::shared_ptr<Exchange> exchange, const JsonValue& body);

}  // namespace hadal
