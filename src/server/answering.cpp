// Mail in, bytes out.
#include "server/answering.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "base/log.h"

namespace hadal {
namespace {

double seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// `last`: when the newest token of the choice came.
void add_times(RequestTimes& t, const AnswerPiece& piece, Clock::time_point arrival,
               Clock::time_point& last) {
  if (piece.started) t.queue = seconds(arrival, *piece.started);
  for (auto time : piece.times) {
    if (t.first_token < 0) {
      t.first_token = seconds(arrival, time);
    } else {
      t.gaps.push_back(seconds(last, time));
    }
    last = time;
  }
}

const char* finished_name(const AnswerEnd& end) {
  if (!end.error.empty()) return "error";
  switch (end.reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
    case FinishReason::kContext:
      return "length";
    case FinishReason::kCancelled:
      break;
  }
  return "abort";
}

class Answering : public std::enable_shared_from_this<Answering> {
 public:
  Answering(Served& served, std::shared_ptr<Exchange> exchange, std::unique_ptr<AnswerShape> shape,
            bool stream)
      : served_(served),
        exchange_(std::move(exchange)),
        shape_(std::move(shape)),
        stream_(stream) {}

  void start(std::vector<Ask> asks) {
    std::vector<ServeRequest> requests;
    for (size_t i = 0; i < asks.size(); ++i) {
      Ask& ask = asks[i];
      Choice choice;
      choice.prompt = ask.request.prompt;
      choices_.push_back(std::move(choice));
      last_.push_back(arrival_);
      auto notify = [http = served_.http, self = weak_from_this(), i] {
        http->post([self, i] {
          if (auto it = self.lock()) it->on_mail(i);
        });
      };
      mails_.push_back(std::make_shared<AnswerMail>(std::move(notify)));
      ask.options.whole = !stream_;
      bool scores = ask.request.sampling.logprobs >= 0;
      auto stop_ids = ask.request.stop_ids;
      ask.request.listener = std::make_unique<AnswerWriter>(
          served_.tokenizer, std::move(ask.options), scores, std::move(stop_ids), mails_.back());
      requests.push_back(std::move(ask.request));
    }
    size_t n = requests.size();
    if (static_cast<int>(n) > served_.loop->capacity())
      return fail({400, "n " + too_many_choices(served_) + ".", "n"});
    ids_ = served_.loop->submit(std::move(requests));
    if (ids_.empty()) {
      served_.metrics.add_refused();
      exchange_->add_header("Retry-After", "1");
      bool dead = !served_.loop->healthy();
      return fail({503, dead ? "the engine has failed: restart the server."
                             : "the queue is full: try again later."});
    }
    // The exchange keeps this alive while it is being answered, and lets go when the client leaves.
    exchange_->on_gone([self = shared_from_this()] { self->abort(); });
  }

 private:
  void fail(const ApiError& error) { reply_error(*exchange_, error, shape_->dialect()); }

  void abort() {
    for (RequestId id : ids_) served_.loop->abort(id);
    keep_ = shared_from_this();  // until the engine has let go of all choices
  }

  void on_mail(size_t i) {
    AnswerPiece piece = mails_[i]->take();
    Choice& choice = choices_[i];
    add_piece(choice, piece);
    add_times(choice.times, piece, arrival_, last_[i]);
    if (piece.end) ended(choice, last_[i]);
    bool over = ended_ == choices_.size();
    auto self = shared_from_this();
    if (over) keep_.reset();
    if (exchange_->gone() || failed_) return;
    if (piece.end && !piece.end->error.empty()) return fail_midway(piece.end->error);
    if (piece.end && piece.end->reason == FinishReason::kCancelled)
      return fail_midway("the server is shutting down.");
    if (stream_) {
      bool silent = piece.events.empty() && !piece.end && piece.scores.empty() && !piece.tokens;
      if (!silent) {
        begin_stream();
        exchange_->send(shape_->stream_piece(choices_, i, piece));
      }
      if (over) {
        exchange_->send(shape_->stream_end(choices_));
        exchange_->finish();
      }
    } else if (over) {
      exchange_->reply(200, "application/json", shape_->whole(choices_));
    }
  }

  void begin_stream() {
    if (exchange_->status() == 0) exchange_->start_stream("text/event-stream; charset=utf-8");
  }

  void fail_midway(const std::string& sentence) {
    failed_ = true;
    for (RequestId id : ids_) served_.loop->abort(id);
    ApiError error{500, sentence};
    if (exchange_->status() == 0) return fail(error);
    exchange_->send(shape_->stream_error(error));
    exchange_->finish();
  }

  void ended(Choice& c, Clock::time_point last) {
    ++ended_;
    if (c.end->error.empty() && !c.calls.empty()) {
      std::vector<ToolCall> calls;
      for (const AnsweredCall& call : c.calls)
        calls.push_back({call.id, call.name, call.arguments});
      served_.replay.remember(std::move(calls), c.end->calls_text);
    }
    RequestTimes& t = c.times;
    t.finished = finished_name(*c.end);
    t.total = seconds(arrival_, Clock::now());
    t.prompt_tokens = static_cast<int64_t>(c.prompt.size());
    t.tokens = c.tokens;
    if (t.first_token >= 0) t.decode = seconds(arrival_, last) - t.first_token;
    served_.metrics.add(t);
  }

  Served& served_;
  std::shared_ptr<Exchange> exchange_;
  std::unique_ptr<AnswerShape> shape_;
  bool stream_, failed_ = false;
  std::vector<Choice> choices_;
  std::vector<Clock::time_point> last_;  // of each choice's newest token
  std::vector<std::shared_ptr<AnswerMail>> mails_;
  std::vector<RequestId> ids_;
  size_t ended_ = 0;
  Clock::time_point arrival_ = Clock::now();
  std::shared_ptr<Answering> keep_;
};

}  // namespace

void answer(Served& served, std::shared_ptr<Exchange> exchange, std::unique_ptr<AnswerShape> shape,
            std::vector<Ask> asks, bool stream) {
  std::make_shared<Answering>(served, std::move(exchange), std::move(shape), stream)
      ->start(std::move(asks));
}

void add_piece(Choice& c, const AnswerPiece& piece) {
  if (piece.started) c.cached = piece.cached;
  for (const StreamEvent& e : piece.events) {
    switch (e.kind) {
      case StreamEvent::Kind::kReasoning:
        c.reasoning += e.text;
        break;
      case StreamEvent::Kind::kContent:
        c.content += e.text;
        break;
      case StreamEvent::Kind::kCallBegin:
        c.calls.push_back({random_id("call_"), e.text, ""});
        break;
      case StreamEvent::Kind::kCallArguments:
        c.calls.back().arguments += e.text;
        break;
      case StreamEvent::Kind::kCallEnd:
        break;
    }
  }
  c.tokens += piece.tokens;
  c.reasoning_tokens += piece.reasoning_tokens;
  auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  append(c.prompt_scores, piece.prompt_scores);
  append(c.scores, piece.scores);
  if (piece.end) c.end = piece.end;
}

Usage usage_of(const std::vector<Choice>& choices, int per_prompt) {
  Usage u;
  for (size_t i = 0; i < choices.size(); ++i) {
    const Choice& c = choices[i];
    if (i % per_prompt == 0) {
      u.prompt += static_cast<int64_t>(c.prompt.size());
      u.cached += c.cached;
    }
    u.completion += c.tokens;
    u.reasoning += c.reasoning_tokens;
  }
  return u;
}

void reply_error(Exchange& exchange, const ApiError& error, Dialect dialect) {
  exchange.reply(error_status(error, dialect), "application/json", error_body(error, dialect));
}

std::string too_many_choices(const Served& served) {
  return fmt::format("asks for more choices than the {} that this server holds at once",
                     served.loop->capacity());
}

int64_t now_seconds() {
  auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

std::string random_id(const std::string& prefix) {
  std::random_device device;
  std::string id = prefix;
  for (int i = 0; i < 3; ++i) id += fmt::format("{:08x}", device());
  return id;
}

bool Served::serves(const std::string& name) const {
  return options.any_name || name.empty() ||
         std::ranges::find(options.names, name) != options.names.end();
}

}  // namespace hadal
