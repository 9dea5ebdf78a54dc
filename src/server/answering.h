// One HTTP request that asks for text, from submission to the last byte: collects what its choices
// bring, and lets a Shape of the API put it into JSON, as a stream or as a whole.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/answer.h"
#include "server/api_error.h"
#include "server/http.h"
#include "server/served.h"

namespace hadal {

struct AnsweredCall {
  std::string id, name, arguments;
};

// All that one choice has brought so far.
struct Choice {
  std::vector<int32_t> prompt;
  std::string reasoning, content;
  std::vector<AnsweredCall> calls;
  std::vector<GeneratedToken> prompt_scores, scores;
  int64_t cached = 0, tokens = 0, reasoning_tokens = 0;
  std::optional<AnswerEnd> end;
  RequestTimes times;
};

// Adds what came to what is there; calls get their ids here.
void add_piece(Choice& choice, const AnswerPiece& piece);

struct Usage {
  int64_t prompt = 0, cached = 0, completion = 0, reasoning = 0;
};

// How an API writes answers. `i` counts choices; `piece` is already part of `choices[i]`.
class AnswerShape {
 public:
  virtual ~AnswerShape() = default;
  virtual Dialect dialect() const { return Dialect::kOpenAI; }
  virtual std::string whole(const std::vector<Choice>& choices) = 0;
  virtual std::string stream_piece(const std::vector<Choice>& choices, size_t i,
                                   const AnswerPiece& piece) = 0;
  // After all choices have ended.
  virtual std::string stream_end(const std::vector<Choice>& choices) = 0;
  virtual std::string stream_error(const ApiError& error) = 0;
};

// One choice to be made.
struct Ask {
  ServeRequest request;  // without its listener
  AnswerOptions options;
};

// Submits all of `asks`, or replies with an error. `choices_per_prompt` is for counting usage.
void answer(Served& served, std::shared_ptr<Exchange> exchange, std::unique_ptr<AnswerShape> shape,
            std::vector<Ask> asks, bool stream);

// Of all choices; each prompt counts once for its `per_prompt` choices.
Usage usage_of(const std::vector<Choice>& choices, int per_prompt);

void reply_error(Exchange& exchange, const ApiError& error, Dialect dialect);

// A sentence's end for `n`, where one request asks for more than submit() can ever take.
std::string too_many_choices(const Served& served);

// Since 1970.
int64_t now_seconds();

// `prefix` and 24 random hex digits.
std::string random_id(const std::string& prefix);

}  // namespace hadal
