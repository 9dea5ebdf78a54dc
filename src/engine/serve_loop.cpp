// Orders in, one step, tokens out: over and over.
#include "engine/serve_loop.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <exception>
#include <limits>

#include "engine/logprobs.h"

namespace hadal {
namespace {

// Above all that logits, penalties and other biases can add up to, at any sane temperature.
constexpr float kForce = 1e30f;

// Requests that arrived together pass through the queue even if they can start at once.
SchedulerLimits queue_for_all(SchedulerLimits limits) {
  limits.max_waiting += limits.max_running;
  return limits;
}

}  // namespace

// A request between its arrival and its end. Waiting: without a session.
struct ServeLoop::Active {
  ServeRequest request;
  HeldSession held;
  std::optional<Sampler> sampler;
  std::vector<TokenBias> bias, early_bias;  // early: while end tokens are forbidden
  std::vector<int32_t> ends;
  int64_t generated = 0;
  int32_t last = 0;            // the token to be fed
  std::deque<int32_t> forced;  // what comes next instead of a choice

  Active(ServeRequest r, const ModelInfo& model) : request(std::move(r)) {
    ends = request.stop_ids;
    if (!request.sampling.ignore_eos)
      for (int64_t id : model.eos_ids) ends.push_back(static_cast<int32_t>(id));
    bias = early_bias = request.logit_bias;
    for (int32_t id : ends) early_bias.push_back({id, -std::numeric_limits<float>::infinity()});
  }

  bool is_end(int32_t id) const { return std::ranges::find(ends, id) != ends.end(); }
  bool in_prompt() const { return held.ids.size() < request.prompt.size(); }
};

ServeLoop::ServeLoop(Engine& engine, const SchedulerLimits& limits, bool reuse_prefixes)
    : engine_(engine),
      limits_(limits),
      scheduler_(queue_for_all(limits)),
      sessions_(engine, limits.max_running, reuse_prefixes),
      thread_([this] { run(); }) {}

ServeLoop::~ServeLoop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  orders_.notify_one();
  thread_.join();
}

std::vector<RequestId> ServeLoop::submit(std::vector<ServeRequest> requests) {
  std::vector<RequestId> ids;
  {
    std::lock_guard lock(mutex_);
    if (stop_ || !healthy_ || open_ + static_cast<int>(requests.size()) > capacity()) return ids;
    open_ += static_cast<int>(requests.size());
    for (ServeRequest& r : requests) {
      ids.push_back(next_id_++);
      arrived_.emplace_back(ids.back(), std::move(r));
    }
  }
  orders_.notify_one();
  return ids;
}

void ServeLoop::abort(RequestId id) {
  std::lock_guard lock(mutex_);
  aborted_.push_back(id);
  orders_.notify_one();
}

ServeStats ServeLoop::stats() const {
  std::lock_guard lock(mutex_);
  ServeStats s = published_;
  s.waiting += static_cast<int>(arrived_.size());
  return s;
}

void ServeLoop::run() {
  while (take_orders()) {
    try {
      start_waiting();
      auto parts = scheduler_.plan();
      publish();
      if (!parts.empty()) step(parts);
    } catch (const std::exception& e) {
      healthy_ = false;
      fail_all(std::string("the engine failed: ") + e.what());
    }
    publish();
  }
  fail_all("");
}

// New requests and aborts; waits for them where there is nothing to do. False: stop.
bool ServeLoop::take_orders() {
  std::vector<std::pair<RequestId, ServeRequest>> arrived;
  std::vector<RequestId> aborted;
  {
    std::unique_lock lock(mutex_);
    orders_.wait(
        lock, [&] { return stop_ || !arrived_.empty() || !aborted_.empty() || !active_.empty(); });
    arrived.swap(arrived_);
    aborted.swap(aborted_);
    published_.waiting += static_cast<int>(arrived.size());
  }
  for (auto& [id, request] : arrived) {
    HADAL_CHECK(scheduler_.add(id, request.priority), "room for all that submit() let in");
    active_.emplace(id, std::make_unique<Active>(std::move(request), engine_.info()));
  }
  for (RequestId id : aborted) end(id, {FinishReason::kCancelled, ""});
  std::lock_guard lock(mutex_);
  return !stop_;
}

void ServeLoop::start_waiting() {
  while (RequestId id = scheduler_.next_to_start()) {
    Active& a = *active_.at(id);
    const auto& prompt = a.request.prompt;
    // Scores of the prompt need every row's logits: nothing of it may come out of a cache.
    std::span<const int32_t> reusable = prompt;
    if (a.request.prompt_logprobs >= 0) reusable = reusable.first(1);
    a.held = sessions_.take(reusable);
    auto cached = static_cast<int64_t>(a.held.ids.size());
    scheduler_.start(id, static_cast<int64_t>(prompt.size()) - cached);
    a.sampler.emplace(a.request.sampling, engine_.info().vocab, prompt);
    sums_.prompt_tokens += static_cast<int64_t>(prompt.size());
    sums_.cached_tokens += cached;
    a.request.listener->on_start(cached);
  }
}

void ServeLoop::step(const std::vector<Scheduler::Part>& parts) {
  std::vector<StepInput> inputs;
  std::vector<size_t> rows;
  for (const auto& part : parts) {
    Active& a = *active_.at(part.id);
    std::span<const int32_t> ids(&a.last, 1);
    auto wanted = part.gives_token ? StepInput::Logits::kLast : StepInput::Logits::kNone;
    if (a.in_prompt()) {
      ids = std::span(a.request.prompt).subspan(a.held.ids.size(), part.tokens);
      if (a.request.prompt_logprobs >= 0) wanted = StepInput::Logits::kAll;
    }
    inputs.push_back({a.held.session.get(), ids, wanted});
    rows.push_back(wanted == StepInput::Logits::kAll    ? ids.size()
                   : wanted == StepInput::Logits::kLast ? 1
                                                        : 0);
  }
  Status status = engine_.step(inputs, logits_);
  ++sums_.steps;
  if (!status.ok()) {
    for (const auto& part : parts) end(part.id, {FinishReason::kCancelled, status.error().message});
    return;
  }
  auto vocab = static_cast<size_t>(engine_.info().vocab);
  size_t first = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    size_t n = rows[i] * vocab;
    deliver(*active_.at(parts[i].id), parts[i], std::span(logits_).subspan(first, n));
    first += n;
  }
}

// Scores of the prompt's tokens that follow the rows of this step. False: a logit was no number.
bool ServeLoop::deliver_prompt(Active& a, size_t first, std::span<const float> rows) {
  auto vocab = static_cast<size_t>(engine_.info().vocab);
  const auto& prompt = a.request.prompt;
  for (size_t r = 0; r < rows.size() / vocab && first + r + 1 < prompt.size(); ++r) {
    auto row = rows.subspan(r * vocab, vocab);
    if (!std::ranges::all_of(row, [](float v) { return std::isfinite(v); })) return false;
    GeneratedToken token{prompt[first + r + 1], 0, {}};
    add_logprobs(row, a.request.prompt_logprobs, scratch_, token);
    a.request.listener->on_prompt_token(token);
  }
  return true;
}

// What a part of a step brought: `rows` are its logits [rows, V].
void ServeLoop::deliver(Active& a, const Scheduler::Part& part, std::span<const float> rows) {
  auto vocab = static_cast<size_t>(engine_.info().vocab);
  if (a.in_prompt()) {
    size_t first = a.held.ids.size();
    auto begin = a.request.prompt.begin() + static_cast<int64_t>(first);
    a.held.ids.insert(a.held.ids.end(), begin, begin + part.tokens);
    if (a.request.prompt_logprobs >= 0 && !deliver_prompt(a, first, rows)) {
      a.held.ids.clear();
      return end(part.id, {FinishReason::kCancelled,
                           "the model computed a logit of the prompt "
                           "that is no number: the checkpoint may be "
                           "damaged"});
    }
  } else {
    a.held.ids.push_back(a.last);
  }
  if (!part.gives_token) return;

  bool early = a.generated < a.request.min_tokens;
  std::vector<TokenBias> bias = early ? a.early_bias : a.bias;
  if (!a.forced.empty()) {
    bias.push_back({a.forced.front(), kForce});
    a.forced.pop_front();
  }
  auto token = a.sampler->sample(rows.last(vocab), bias);
  if (!token.ok()) {
    a.held.ids.clear();  // whatever made this number is in the caches too
    return end(part.id, {FinishReason::kCancelled, token.error().message});
  }
  a.last = token.value().id;
  ++a.generated;
  ++sums_.generated_tokens;
  bool ends = a.is_end(a.last);
  bool go_on = a.request.listener->on_token(token.value(), ends);
  for (int32_t id : a.request.listener->force()) a.forced.push_back(id);
  if (ends || !go_on) return end(part.id, {FinishReason::kStop, ""});
  if (a.generated >= a.request.sampling.max_tokens)
    return end(part.id, {FinishReason::kLength, ""});
  if (a.held.session->length() + 1 >= engine_.info().max_context)
    return end(part.id, {FinishReason::kContext, ""});
}

void ServeLoop::end(RequestId id, const RequestEnd& end) {
  auto it = active_.find(id);
  if (it == active_.end()) return;
  std::unique_ptr<Active> a = std::move(it->second);
  active_.erase(it);
  scheduler_.remove(id);
  // After a failure nobody knows what a session holds.
  if (a->held.session && healthy_) sessions_.give(std::move(a->held));
  {
    std::lock_guard lock(mutex_);
    --open_;
  }
  // The listener's news must not be ahead of the gauges that a client may ask for next.
  publish();
  a->request.listener->on_end(end);
}

void ServeLoop::fail_all(const std::string& sentence) {
  std::vector<RequestId> ids;
  for (const auto& [id, a] : active_) ids.push_back(id);
  std::ranges::sort(ids);
  for (RequestId id : ids) end(id, {FinishReason::kCancelled, sentence});
  std::vector<std::pair<RequestId, ServeRequest>> arrived;
  {
    std::lock_guard lock(mutex_);
    arrived.swap(arrived_);
    open_ -= static_cast<int>(arrived.size());
  }
  for (auto& [id, request] : arrived)
    request.listener->on_end({FinishReason::kCancelled, sentence});
}

void ServeLoop::publish() {
  ServeStats s = sums_;
  s.running = scheduler_.running();
  s.waiting = scheduler_.waiting();
  int64_t held = 0;
  for (const auto& [id, a] : active_) held += static_cast<int64_t>(a->held.ids.size());
  s.cache_usage = static_cast<double>(held) /
                  (static_cast<double>(engine_.info().max_context) * limits_.max_running);
  std::lock_guard lock(mutex_);
  published_ = s;
}

}  // namespace hadal
