// Engine::generate on the trained model: the reference's ids however the prompt is cut, and each
// way in which a generation ends.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "hadal.h"

namespace hadal {
namespace {

using Ids = std::vector<int32_t>;

struct Reference {
  Ids prompt, output;
};

Reference reference() {
  std::ifstream file(std::string(HADAL_MODELS) + "/tiny-v4/greedy_reference.json");
  auto entry = nlohmann::json::parse(file)[0];
  return {entry["prompt_ids"], entry["output_ids"]};
}

std::unique_ptr<Engine> open_engine(int64_t step_tokens, int64_t max_context = 0) {
  EngineOptions options;
  options.numerics = NumericsMode::kExact;
  options.max_step_tokens = step_tokens;
  options.max_context = max_context;
  options.threads = 1;
  auto engine = Engine::open(std::string(HADAL_MODELS) + "/tiny-v4", options);
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().message);
  return engine.ok() ? std::move(engine).value() : nullptr;
}

SamplingParams greedy() {
  SamplingParams p;
  p.temperature = 0;
  return p;
}

bool go_on(const GeneratedToken&) { return true; }

TEST(Generate, GivesTheReferencesIdsForEveryChunk) {
  Reference ref = reference();
  for (int64_t chunk : {1, 7, 33, 34, 512}) {
    auto engine = open_engine(chunk);
    ASSERT_TRUE(engine);
    auto session = engine->open_session().value();
    Ids streamed;
    std::vector<int64_t> prefilled;
    auto g = engine->generate(
        *session, ref.prompt, greedy(),
        [&](const GeneratedToken& t) {
          streamed.push_back(t.id);
          return true;
        },
        [&](int64_t done) {
          prefilled.push_back(done);
          return true;
        });
    ASSERT_TRUE(g.ok()) << g.error().message;
    EXPECT_EQ(g.value().ids, ref.output) << chunk;
    EXPECT_EQ(streamed, ref.output);
    EXPECT_EQ(g.value().reason, FinishReason::kStop);
    EXPECT_EQ(g.value().prompt_tokens, 34);
    EXPECT_EQ(g.value().cached_tokens, 0);
    EXPECT_EQ(prefilled.size(), static_cast<size_t>((34 + chunk - 1) / chunk));
    EXPECT_EQ(prefilled.back(), 34);
    EXPECT_EQ(session->length(), static_cast<int64_t>(34 + ref.output.size() - 1));
  }
}

TEST(Generate, ContinuesWhatTheSessionHolds) {
  Reference ref = reference();
  auto engine = open_engine(16);
  ASSERT_TRUE(engine);
  auto session = engine->open_session().value();
  // The answer cut after 10 tokens, then continued by feeding the tenth.
  SamplingParams params = greedy();
  params.max_tokens = 10;
  auto first = engine->generate(*session, ref.prompt, params, go_on).value();
  EXPECT_EQ(first.reason, FinishReason::kLength);
  ASSERT_EQ(first.ids.size(), 10u);
  auto rest = engine->generate(*session, {&first.ids.back(), 1}, greedy(), go_on).value();
  EXPECT_EQ(rest.cached_tokens, 34 + 9);
  EXPECT_EQ(rest.prompt_tokens, 34 + 10);
  Ids all = first.ids;
  all.insert(all.end(), rest.ids.begin(), rest.ids.end());
  EXPECT_EQ(all, ref.output);
  // And from an empty session again.
  ASSERT_TRUE(session->rewind(0).ok());
  EXPECT_EQ(engine->generate(*session, ref.prompt, greedy(), go_on).value().ids, ref.output);
}

TEST(Generate, EndsAtTheContextAndPastTheEndToken) {
  Reference ref = reference();
  auto engine = open_engine(512, 80);
  ASSERT_TRUE(engine);
  auto session = engine->open_session().value();
  SamplingParams params = greedy();
  params.ignore_eos = true;
  auto g = engine->generate(*session, ref.prompt, params, go_on).value();
  EXPECT_EQ(g.reason, FinishReason::kContext);
  ASSERT_EQ(g.ids.size(), 46u);  // 34 + 46 = 80
  EXPECT_EQ(Ids(g.ids.begin(), g.ids.begin() + 29), ref.output);
}

TEST(Generate, CancelsDuringPromptAndAnswer) {
  Reference ref = reference();
  auto engine = open_engine(10);
  ASSERT_TRUE(engine);
  auto session = engine->open_session().value();
  auto g = engine->generate(*session, ref.prompt, greedy(), go_on,
                            [](int64_t done) { return done < 20; });
  EXPECT_EQ(g.value().reason, FinishReason::kCancelled);
  EXPECT_TRUE(g.value().ids.empty());
  EXPECT_EQ(session->length(), 20);
  ASSERT_TRUE(session->rewind(0).ok());
  int tokens = 0;
  g = engine->generate(*session, ref.prompt, greedy(),
                       [&](const GeneratedToken&) { return ++tokens < 5; });
  EXPECT_EQ(g.value().reason, FinishReason::kCancelled);
  EXPECT_EQ(g.value().ids, Ids(ref.output.begin(), ref.output.begin() + 5));
  EXPECT_EQ(session->length(), 34 + 4);
}

TEST(Generate, LogprobsAreThoseOfTheStep) {
  Reference ref = reference();
  auto engine = open_engine(512);
  ASSERT_TRUE(engine);
  auto session = engine->open_session().value();
  std::vector<float> logits;
  StepInput input{session.get(), ref.prompt, StepInput::Logits::kLast};
  ASSERT_TRUE(engine->step({&input, 1}, logits).ok());
  double sum = 0, best = logits[ref.output[0]];
  for (float v : logits) sum += std::exp(v - best);
  ASSERT_TRUE(session->rewind(0).ok());
  SamplingParams params = greedy();
  params.max_tokens = 1;
  params.logprobs = 1;
  GeneratedToken token;
  ASSERT_TRUE(engine
                  ->generate(*session, ref.prompt, params,
                             [&](const GeneratedToken& t) {
                               token = t;
                               return true;
                             })
                  .ok());
  EXPECT_EQ(token.id, ref.output[0]);
  EXPECT_NEAR(token.logprob, -std::log(sum), 1e-6);
  ASSERT_EQ(token.top.size(), 1u);
  EXPECT_EQ(token.top[0].id, token.id);
}

TEST(Generate, WrongInputsLeaveTheSessionAsItWas) {
  Reference ref = reference();
  auto engine = open_engine(512, 40);
  ASSERT_TRUE(engine);
  auto session = engine->open_session().value();
  auto message = [&](const Ids& prompt, const SamplingParams& params) {
    auto g = engine->generate(*session, prompt, params, go_on);
    return g.ok() ? std::string() : g.error().message;
  };
  EXPECT_NE(message({}, greedy()).find("the prompt is empty"), std::string::npos);
  EXPECT_NE(message(Ids(40, 3), greedy()).find("40 tokens, the context 40,"), std::string::npos);
  EXPECT_NE(message({3, -1}, greedy()).find("-1"), std::string::npos);
  EXPECT_NE(message({3, 768}, greedy()).find("768"), std::string::npos);
  SamplingParams wrong = greedy();
  wrong.top_p = 2;
  EXPECT_NE(message({3}, wrong).find("top_p is 2"), std::string::npos);
  EXPECT_EQ(session->length(), 0);
  SamplingParams one = greedy();
  one.max_tokens = 1;
  EXPECT_EQ(message(Ids(39, 3), one), "");
  EXPECT_NE(message({3}, one).find("1 tokens after 39 that the session holds, the context 40"),
            std::string::npos);
}

}  // namespace
}  // namespace hadal
