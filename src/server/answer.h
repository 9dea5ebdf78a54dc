// From tokens to text for one answer: what runs in the engine thread for each token (detokenise,
// stop strings, reasoning and tool calls), and the mailbox from which the HTTP thread takes it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/serve_loop.h"
#include "text/detokenizer.h"
#include "text/stop_strings.h"
#include "text/stream_parser.h"
#include "text/tokenizer.h"

namespace hadal {

using Clock = std::chrono::steady_clock;

struct AnswerOptions {
  bool chat = true;  // tell reasoning, content and calls apart; else all text is content
  ChatFormat format = ChatFormat::kV4Preview;
  bool in_reasoning = false;    // where the prompt ended
  bool tools = false;           // calls may come
  bool one_call = false;        // end after the first call
  std::vector<int32_t> forced;  // tokens that content begins with, once reasoning has ended
  std::string opening;          // text that the prompt forced on the model, part of its answer
  std::vector<std::string> stop;
  bool include_stop = false;
  bool skip_special = true;  // special tokens other than the format's markup have no text
  bool whole = false;        // no news before the end
};

struct AnswerEnd {
  FinishReason reason = FinishReason::kCancelled;
  std::string error;
  std::optional<std::string> stop_string;
  std::optional<int32_t> stop_id;  // of stop_token_ids, not the model's own end
  std::string calls_text;          // StreamParser::calls_text
};

// What came since the last look.
struct AnswerPiece {
  std::optional<Clock::time_point> started;  // the request got a session ...
  int64_t cached = 0;                        // ... that held so much of its prompt
  std::vector<StreamEvent> events;
  std::vector<GeneratedToken> prompt_scores, scores;  // where they were asked for
  int64_t tokens = 0, reasoning_tokens = 0;           // new ones
  std::vector<Clock::time_point> times;               // of the new tokens
  std::optional<AnswerEnd> end;
};

// From the engine thread to the HTTP thread.
class AnswerMail {
 public:
  // `notify` is called in the engine thread when there is something new after a take().
  explicit AnswerMail(std::function<void()> notify) : notify_(std::move(notify)) {}
  AnswerPiece take();
  // `quiet`: nobody need be told yet.
  void put(const std::function<void(AnswerPiece&)>& add, bool quiet);

 private:
  std::mutex mutex_;
  AnswerPiece piece_;
  bool told_ = false;
  std::function<void()> notify_;
};

class AnswerWriter : public RequestListener {
 public:
  // `tokenizer` must outlive this.
  AnswerWriter(const Tokenizer& tokenizer, AnswerOptions options, bool scores,
               std::vector<int32_t> stop_ids, std::shared_ptr<AnswerMail> mail);

  void on_start(int64_t cached) override;
  void on_prompt_token(const GeneratedToken& token) override;
  bool on_token(const GeneratedToken& token, bool ends) override;
  std::vector<int32_t> force() override;
  void on_end(const RequestEnd& end) override;

 private:
  void feed(int32_t id, std::vector<StreamEvent>& events);
  void parse(std::string_view text, std::vector<StreamEvent>& events);
  bool one_call_is_over(std::vector<StreamEvent>& events);

  const Tokenizer& tokenizer_;
  AnswerOptions options_;
  bool scores_;
  std::vector<int32_t> stop_ids_;
  std::shared_ptr<AnswerMail> mail_;
  Detokenizer detokenizer_;
  StopStrings stops_;
  StreamParser parser_;
  std::vector<int32_t> marks_;  // tokens of the format's markup
  bool call_over_ = false;      // one_call: what comes now is dropped
  AnswerEnd end_;
};

}  // namespace hadal
