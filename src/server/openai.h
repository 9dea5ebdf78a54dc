// OpenAI's endpoints: from a request's JSON to answers. Each replies to `exchange` in the end, with
// an error in OpenAI's shape where the request is wrong.
#pragma once

#include <memory>

#include "server/http.h"
#include "server/served.h"
#include "text/json_text.h"

namespace hadal {

void chat_completions(Served& served, std::shared_ptr<Exchange> exchange, const JsonValue& body);
void completions(Served& served, std::shared_ptr<Exchange> exchange, const JsonValue& body);
void tokenize(Served& served, Exchange& exchange, const JsonValue& body);
void detokenize(Served& served, Exchange& exchange, const JsonValue& body);

}  // namespace hadal
