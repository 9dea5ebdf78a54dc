// Token by token. Stop strings look at ordinary text; the markup's tokens go around them.
#include "server/answer.h"

#include <algorithm>
#include <utility>

#include "text/chat_encoders.h"

namespace hadal {

using Kind = StreamEvent::Kind;

AnswerPiece AnswerMail::take() {
  std::lock_guard lock(mutex_);
  told_ = false;
  return std::exchange(piece_, {});
}

void AnswerMail::put(const std::function<void(AnswerPiece&)>& add, bool quiet) {
  {
    std::lock_guard lock(mutex_);
    add(piece_);
    if (quiet || told_) return;
    told_ = true;
  }
  notify_();
}

AnswerWriter::AnswerWriter(const Tokenizer& tokenizer, AnswerOptions options, bool scores,
                           std::vector<int32_t> stop_ids, std::shared_ptr<AnswerMail> mail)
    : tokenizer_(tokenizer),
      options_(std::move(options)),
      scores_(scores),
      stop_ids_(std::move(stop_ids)),
      mail_(std::move(mail)),
      detokenizer_(tokenizer),
      stops_(options_.stop),
      parser_(options_.format, options_.in_reasoning, options_.tools) {
  if (!options_.chat) return;
  for (std::string_view text :
       {kThink, kThinkEnd, kDsml, kCallsBegin, kCallsEnd, kCallBegin, kCallEnd, kSep}) {
    if (auto id = tokenizer.id_of(text)) marks_.push_back(*id);
  }
}

void AnswerWriter::on_start(int64_t cached) {
  std::vector<StreamEvent> events;
  if (!options_.opening.empty()) parse(options_.opening, events);
  mail_->put(
      [&](AnswerPiece& p) {
        p.started = Clock::now();
        p.cached = cached;
        p.events = std::move(events);
      },
      true);
}

void AnswerWriter::on_prompt_token(const GeneratedToken& token) {
  mail_->put([&](AnswerPiece& p) { p.prompt_scores.push_back(token); }, true);
}

void AnswerWriter::parse(std::string_view text, std::vector<StreamEvent>& events) {
  if (options_.chat) {
    parser_.push(text, events);
  } else if (!text.empty()) {
    events.push_back({Kind::kContent, std::string(text)});
  }
}

void AnswerWriter::feed(int32_t id, std::vector<StreamEvent>& events) {
  bool mark = std::ranges::find(marks_, id) != marks_.end();
  if (!mark && options_.skip_special && tokenizer_.is_special(id)) return;
  if (mark) {
    parse(stops_.feed(detokenizer_.finish()), events);
    if (stops_.stopped()) return;
    parse(stops_.flush(), events);
    parse(tokenizer_.token_bytes(id), events);
  } else {
    parse(stops_.feed(detokenizer_.push(id)), events);
  }
}

// Cuts what came behind the first call.
bool AnswerWriter::one_call_is_over(std::vector<StreamEvent>& events) {
  if (!options_.one_call) return false;
  auto end = std::ranges::find(events, Kind::kCallEnd, &StreamEvent::kind);
  if (end == events.end()) return false;
  events.erase(end + 1, events.end());
  call_over_ = true;
  return true;
}

bool AnswerWriter::on_token(const GeneratedToken& token, bool ends) {
  bool reasoning = options_.chat && parser_.in_reasoning();
  std::vector<StreamEvent> events;
  bool is_stop_id = std::ranges::find(stop_ids_, token.id) != stop_ids_.end();
  if (!ends || (is_stop_id && options_.include_stop)) feed(token.id, events);
  if (ends && is_stop_id) end_.stop_id = token.id;
  if (stops_.stopped()) {
    end_.stop_string = stops_.matched();
    if (options_.include_stop) parse(stops_.matched(), events);
  }
  bool over = stops_.stopped() || one_call_is_over(events);
  mail_->put(
      [&](AnswerPiece& p) {
        std::ranges::move(events, std::back_inserter(p.events));
        ++p.tokens;
        p.reasoning_tokens += reasoning;
        p.times.push_back(Clock::now());
        if (scores_) p.scores.push_back(token);
      },
      options_.whole);
  return !over;
}

std::vector<int32_t> AnswerWriter::force() {
  if (options_.forced.empty() || parser_.in_reasoning()) return {};
  return std::exchange(options_.forced, {});
}

void AnswerWriter::on_end(const RequestEnd& end) {
  std::vector<StreamEvent> events;
  if (!stops_.stopped()) {
    parse(stops_.feed(detokenizer_.finish()), events);
    if (!stops_.stopped()) parse(stops_.flush(), events);
  }
  if (options_.chat) parser_.finish(events);
  if (call_over_) events.clear();
  end_.reason = end.reason;
  end_.error = end.error;
  end_.calls_text = parser_.calls_text();
  mail_->put(
      [&](AnswerPiece& p) {
        std::ranges::move(events, std::back_inserter(p.events));
        p.end = std::move(end_);
      },
      false);
}

}  // namespace hadal
