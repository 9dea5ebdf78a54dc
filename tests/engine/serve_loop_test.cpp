// The engine thread on the trained model: the reference's ids for every request, whatever runs
// beside it; waiting, aborts, limits, and what a kept session saves.
#include "engine/serve_loop.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>

namespace hadal {
namespace {

using Ids = std::vector<int32_t>;

struct Reference {
  Ids prompt, output;
};

std::vector<Reference> references() {
  std::ifstream file(std::string(HADAL_MODELS) + "/tiny-v4/greedy_reference.json");
  std::vector<Reference> all;
  for (const auto& e : nlohmann::json::parse(file))
    all.push_back({e["prompt_ids"], e["output_ids"]});
  return all;
}

std::unique_ptr<Engine> open_engine(int sessions, int64_t step_tokens = 64) {
  EngineOptions options;
  options.numerics = NumericsMode::kExact;
  options.max_step_tokens = step_tokens;
  options.max_sessions = sessions;
  options.max_context = 1024;
  options.threads = 1;
  auto engine = Engine::open(std::string(HADAL_MODELS) + "/tiny-v4", options);
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().message);
  return std::move(engine).value();
}

struct Heard {
  std::vector<GeneratedToken> prompt, tokens;
  int64_t cached = -1;
  bool saw_end_token = false;
  RequestEnd end;
  Ids ids() const {
    Ids ids;
    for (const auto& t : tokens) ids.push_back(t.id);
    return ids;
  }
};

// Collects, and hands all over at the end. `on_token` may look and end the request.
class Collector : public RequestListener {
 public:
  explicit Collector(std::function<bool(int64_t n)> on_token = {}) : look_(std::move(on_token)) {}
  std::future<Heard> result() { return promise_.get_future(); }
  void on_start(int64_t cached) override { heard_.cached = cached; }
  void on_prompt_token(const GeneratedToken& t) override { heard_.prompt.push_back(t); }
  bool on_token(const GeneratedToken& t, bool ends) override {
    heard_.tokens.push_back(t);
    heard_.saw_end_token = ends;
    return !look_ || look_(static_cast<int64_t>(heard_.tokens.size()));
  }
  void on_end(const RequestEnd& end) override {
    heard_.end = end;
    promise_.set_value(std::move(heard_));
  }

 private:
  std::function<bool(int64_t)> look_;
  Heard heard_;
  std::promise<Heard> promise_;
};

struct Sent {
  RequestId id = 0;  // 0: refused
  std::future<Heard> result;
};

ServeRequest greedy(Ids prompt, int max_tokens = 200) {
  ServeRequest r;
  r.prompt = std::move(prompt);
  r.sampling.temperature = 0;
  r.sampling.max_tokens = max_tokens;
  return r;
}

Sent send(ServeLoop& loop, ServeRequest r, std::function<bool(int64_t)> look = {}) {
  auto collector = std::make_unique<Collector>(std::move(look));
  Sent sent;
  sent.result = collector->result();
  r.listener = std::move(collector);
  std::vector<ServeRequest> one;
  one.push_back(std::move(r));
  auto ids = loop.submit(std::move(one));
  if (!ids.empty()) sent.id = ids[0];
  return sent;
}

void expect_idle(const ServeLoop& loop) {
  EXPECT_EQ(loop.stats().running, 0);
  EXPECT_EQ(loop.stats().waiting, 0);
  EXPECT_EQ(loop.stats().cache_usage, 0);
  EXPECT_TRUE(loop.healthy());
}

TEST(ServeLoop, GivesTheReferencesIdsWhateverRunsBeside) {
  auto refs = references();
  ASSERT_GE(refs.size(), 3u);
  auto engine = open_engine(4, 32);
  ServeLoop loop(*engine, {32, 4, 100}, true);
  std::vector<Sent> sent;
  for (int round = 0; round < 3; ++round)
    for (const auto& ref : refs)
      sent.push_back(send(loop, greedy(ref.prompt, static_cast<int>(ref.output.size()))));
  for (size_t i = 0; i < sent.size(); ++i) {
    Heard heard = sent[i].result.get();
    const Ids& expected = refs[i % refs.size()].output;
    EXPECT_EQ(heard.ids(), expected) << i;
    EXPECT_EQ(heard.end.error, "");
    // The long ones were cut when the reference was made.
    bool whole = expected.back() == engine->info().eos_ids[0];
    EXPECT_EQ(heard.end.reason, whole ? FinishReason::kStop : FinishReason::kLength) << i;
    EXPECT_EQ(heard.saw_end_token, whole);
  }
  expect_idle(loop);
}

TEST(ServeLoop, TheNextTurnRunsOnlyWhatIsNew) {
  auto ref = references()[0];
  for (bool reuse : {true, false}) {
    auto engine = open_engine(2);
    ServeLoop loop(*engine, {64, 2, 10}, reuse);
    Heard first = send(loop, greedy(ref.prompt)).result.get();
    EXPECT_EQ(first.cached, 0);
    // All but the end token was fed; the next prompt holds it and more.
    Ids next = ref.prompt;
    next.insert(next.end(), ref.output.begin(), ref.output.end());
    next.insert(next.end(), ref.prompt.begin() + 1, ref.prompt.end());
    Heard second = send(loop, greedy(next, 8)).result.get();
    size_t held = ref.prompt.size() + ref.output.size() - 1;
    EXPECT_EQ(second.cached, reuse ? static_cast<int64_t>(held) : 0);
    // The same prompt again can take back few tokens only: another session, or an emptied one.
    Heard third = send(loop, greedy(next, 8)).result.get();
    EXPECT_EQ(third.ids(), second.ids());
    auto fresh = open_engine(1);
    ServeLoop alone(*fresh, {64, 1, 10}, false);
    EXPECT_EQ(send(alone, greedy(next, 8)).result.get().ids(), second.ids());
    EXPECT_EQ(loop.stats().prompt_tokens,
              static_cast<int64_t>(ref.prompt.size() + 2 * next.size()));
    EXPECT_EQ(loop.stats().cached_tokens, second.cached + third.cached);
  }
}

TEST(ServeLoop, MoreRequestsThanSessionsWaitAndTheQueueEnds) {
  auto ref = references()[0];
  auto engine = open_engine(1);
  ServeLoop loop(*engine, {64, 1, 2}, true);
  std::promise<void> started, go;
  auto hold = send(loop, greedy(ref.prompt), [&](int64_t n) {
    if (n == 1) {
      started.set_value();
      go.get_future().wait();
    }
    return true;
  });
  started.get_future().wait();
  auto second = send(loop, greedy(ref.prompt)), third = send(loop, greedy(ref.prompt));
  EXPECT_NE(second.id, 0u);
  EXPECT_NE(third.id, 0u);
  EXPECT_EQ(loop.stats().waiting, 2);
  EXPECT_EQ(send(loop, greedy(ref.prompt)).id, 0u);  // full
  loop.abort(second.id);                             // in the queue
  go.set_value();
  EXPECT_EQ(hold.result.get().ids(), ref.output);
  Heard aborted = second.result.get();
  EXPECT_EQ(aborted.end.reason, FinishReason::kCancelled);
  EXPECT_EQ(aborted.cached, -1);  // it never started
  EXPECT_EQ(third.result.get().ids(), ref.output);
  expect_idle(loop);
  EXPECT_NE(send(loop, greedy(ref.prompt)).id, 0u);
}

TEST(ServeLoop, AbortsInTheMiddleOfAPrompt) {
  auto ref = references()[0];
  auto engine = open_engine(2, 8);
  ServeLoop loop(*engine, {8, 2, 10}, true);
  Ids long_prompt;
  while (long_prompt.size() < 1000)
    long_prompt.insert(long_prompt.end(), ref.prompt.begin(), ref.prompt.end());
  long_prompt.resize(1000);
  auto long_one = send(loop, greedy(long_prompt));
  while (loop.stats().steps < 5) std::this_thread::yield();
  loop.abort(long_one.id);
  Heard heard = long_one.result.get();
  EXPECT_EQ(heard.end.reason, FinishReason::kCancelled);
  EXPECT_TRUE(heard.tokens.empty());
  EXPECT_LT(loop.stats().steps, 1000 / 8);
  expect_idle(loop);
  // What was run of it is kept and right.
  Heard again = send(loop, greedy(long_prompt, 4)).result.get();
  EXPECT_GE(again.cached, 5 * 8);
  auto fresh = open_engine(1);
  ServeLoop alone(*fresh, {64, 1, 10}, false);
  EXPECT_EQ(send(alone, greedy(long_prompt, 4)).result.get().ids(), again.ids());
}

TEST(ServeLoop, EndsWhereItShould) {
  auto ref = references()[0];
  auto engine = open_engine(1);
  ServeLoop loop(*engine, {64, 1, 10}, true);
  auto get = [&](ServeRequest r, std::function<bool(int64_t)> look = {}) {
    return send(loop, std::move(r), std::move(look)).result.get();
  };
  // The listener.
  Heard h = get(greedy(ref.prompt), [](int64_t n) { return n < 5; });
  EXPECT_EQ(h.ids(), Ids(ref.output.begin(), ref.output.begin() + 5));
  EXPECT_EQ(h.end.reason, FinishReason::kStop);
  // max_tokens.
  h = get(greedy(ref.prompt, 3));
  EXPECT_EQ(h.tokens.size(), 3u);
  EXPECT_EQ(h.end.reason, FinishReason::kLength);
  // A stop id, also with ignore_eos.
  ServeRequest r = greedy(ref.prompt);
  r.stop_ids = {ref.output[4]};
  r.sampling.ignore_eos = true;
  h = get(std::move(r));
  EXPECT_EQ(h.ids(), Ids(ref.output.begin(), std::ranges::find(ref.output, ref.output[4]) + 1));
  EXPECT_TRUE(h.saw_end_token);
  // ignore_eos goes on to max_tokens, and to the context's end.
  r = greedy(ref.prompt, 60);
  r.sampling.ignore_eos = true;
  h = get(std::move(r));
  EXPECT_EQ(h.tokens.size(), 60u);
  r = greedy(ref.prompt, 100000);
  r.sampling.ignore_eos = true;
  h = get(std::move(r));
  EXPECT_EQ(h.tokens.size(), 1024 - ref.prompt.size());
  EXPECT_EQ(h.end.reason, FinishReason::kContext);
  // No end token before min_tokens.
  r = greedy(ref.prompt, 60);
  r.min_tokens = 50;
  h = get(std::move(r));
  EXPECT_GE(h.tokens.size(), 50u);
  EXPECT_TRUE(std::equal(ref.output.begin(), ref.output.end() - 1, h.ids().begin()));
  // Bias decides; the logprob is that of the model.
  r = greedy(ref.prompt, 1);
  r.logit_bias = {{17, 1000}};
  r.sampling.logprobs = 1;
  h = get(std::move(r));
  EXPECT_EQ(h.ids(), Ids{17});
  EXPECT_LT(h.tokens[0].logprob, h.tokens[0].top[0].logprob);
  EXPECT_EQ(h.tokens[0].top[0].id, ref.output[0]);
}

// Wants three tokens after its second one.
class Forcing : public Collector {
 public:
  using Collector::Collector;
  std::vector<int32_t> force() override { return ++tokens_ == 2 ? Ids{17, 18, 17} : Ids{}; }

 private:
  int tokens_ = 0;
};

TEST(ServeLoop, ForcedTokensComeWhateverTheModelWants) {
  auto ref = references()[0];
  auto engine = open_engine(1);
  ServeLoop loop(*engine, {64, 1, 10}, true);
  for (float temperature : {0.f, 1.f}) {
    std::vector<ServeRequest> one;
    one.push_back(greedy(ref.prompt, 6));
    one[0].sampling.temperature = temperature;
    auto listener = std::make_unique<Forcing>();
    auto result = listener->result();
    one[0].listener = std::move(listener);
    ASSERT_EQ(loop.submit(std::move(one)).size(), 1u);
    Ids ids = result.get().ids();
    ASSERT_EQ(ids.size(), 6u);
    EXPECT_EQ(Ids(ids.begin() + 2, ids.begin() + 5), (Ids{17, 18, 17}));
  }
}

TEST(ServeLoop, ScoresThePrompt) {
  auto ref = references()[0];
  auto engine = open_engine(2, 16);
  // The same from one plain step.
  auto plain = open_engine(1);
  auto session = plain->open_session().value();
  StepInput input{session.get(), ref.prompt, StepInput::Logits::kAll};
  std::vector<float> logits;
  ASSERT_TRUE(plain->step({&input, 1}, logits).ok());
  auto vocab = static_cast<size_t>(plain->info().vocab);

  ServeLoop loop(*engine, {16, 2, 10}, true);
  for (int round = 0; round < 2; ++round) {  // a kept session must not shorten it
    ServeRequest r = greedy(ref.prompt, 1);
    r.prompt_logprobs = 1;
    Heard h = send(loop, std::move(r)).result.get();
    EXPECT_EQ(h.cached, 0);
    ASSERT_EQ(h.prompt.size(), ref.prompt.size() - 1);
    for (size_t i = 0; i < h.prompt.size(); ++i) {
      EXPECT_EQ(h.prompt[i].id, ref.prompt[i + 1]);
      double sum = 0, best = -INFINITY;
      for (size_t v = 0; v < vocab; ++v) {
        double x = logits[i * vocab + v];
        sum += std::exp(x);
        best = std::max(best, x);
      }
      EXPECT_NEAR(h.prompt[i].logprob, logits[i * vocab + ref.prompt[i + 1]] - std::log(sum), 2e-4);
      EXPECT_NEAR(h.prompt[i].top.at(0).logprob, best - std::log(sum), 2e-4);
    }
  }
}

TEST(ServeLoop, TheEndOfTheLoopEndsAllRequests) {
  auto ref = references()[0];
  auto engine = open_engine(1);
  Sent running, waiting;
  {
    ServeLoop loop(*engine, {64, 1, 10}, true);
    ServeRequest r = greedy(ref.prompt, 900);
    r.sampling.ignore_eos = true;
    running = send(loop, std::move(r));
    waiting = send(loop, greedy(ref.prompt));
  }
  EXPECT_EQ(running.result.get().end.reason, FinishReason::kCancelled);
  EXPECT_EQ(waiting.result.get().end.reason, FinishReason::kCancelled);
}

}  // namespace
}  // namespace hadal
