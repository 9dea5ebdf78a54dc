// The OpenAI endpoints over a real socket, with the trained model: the reference's answers in every
// shape, and the refusals that clients rely on.
#include <cmath>
#include <nlohmann/json.hpp>

#include "server/client.h"

namespace hadal {
namespace {

using Json = nlohmann::ordered_json;

Reference reference(const std::string& kind) { return read_reference<Json>(kind); }
Json ask(const Json& more = Json::object()) { return chat_request(more); }

class OpenAI : public testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = new ServerProgram(); }
  static void TearDownTestSuite() { delete server_; }
  static Reply chat(const Json& body) { return server_->post("/v1/chat/completions", body); }
  static Reply complete(const Json& body) { return server_->post("/v1/completions", body); }
  static ServerProgram* server_;
};
ServerProgram* OpenAI::server_ = nullptr;

// What a chat stream adds up to, checked frame by frame on the way.
struct Streamed {
  std::string content, reasoning, finish_reason;
  Json usage, logprobs = Json::array();
  int roles = 0;
};
Streamed streamed(const Reply& reply) {
  Streamed s;
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.header("Content-Type"), "text/event-stream; charset=utf-8");
  auto frames = reply.frames();
  EXPECT_GE(frames.size(), 3u);
  EXPECT_EQ(frames.back(), "[DONE]");
  std::string id;
  for (size_t i = 0; i + 1 < frames.size(); ++i) {
    Json j = Json::parse(frames[i]);
    if (id.empty()) id = j["id"];
    EXPECT_EQ(j["id"], id);
    EXPECT_EQ(j["object"], "chat.completion.chunk");
    EXPECT_EQ(j["model"], "tiny-v4");
    EXPECT_TRUE(j["created"].is_number_integer());
    if (j["choices"].empty()) {
      s.usage = j["usage"];
      EXPECT_EQ(i + 2, frames.size());
      continue;
    }
    const Json& choice = j["choices"][0];
    EXPECT_EQ(choice["index"], 0);
    EXPECT_TRUE(choice.contains("finish_reason"));
    EXPECT_EQ(s.finish_reason, "");  // nothing after the last
    const Json& delta = choice["delta"];
    if (delta.contains("role")) {
      EXPECT_EQ(i, 0u);
      EXPECT_EQ(delta["role"], "assistant");
      EXPECT_EQ(delta["content"], "");
      ++s.roles;
    }
    if (delta.contains("content")) s.content += delta["content"];
    if (delta.contains("reasoning_content")) {
      EXPECT_EQ(delta["reasoning_content"], delta["reasoning"]);
      s.reasoning += delta["reasoning"];
    }
    if (choice["logprobs"].is_object())
      for (const auto& t : choice["logprobs"]["content"]) s.logprobs.push_back(t);
    if (choice["finish_reason"].is_string()) s.finish_reason = choice["finish_reason"];
  }
  EXPECT_EQ(s.roles, 1);
  return s;
}

TEST_F(OpenAI, ChatAnswersAsTheReferenceDoes) {
  Reply r = chat(ask());
  ASSERT_EQ(r.status, 200) << r.body;
  Json j = r.json<Json>();
  EXPECT_EQ(j["object"], "chat.completion");
  EXPECT_EQ(j["model"], "tiny-v4");
  ASSERT_EQ(j["choices"].size(), 1u);
  const Json& c = j["choices"][0];
  EXPECT_EQ(c["message"]["content"], reference("chat").output);
  EXPECT_EQ(c["message"]["role"], "assistant");
  EXPECT_FALSE(c["message"].contains("reasoning"));
  EXPECT_FALSE(c["message"].contains("tool_calls"));
  EXPECT_EQ(c["finish_reason"], "stop");
  EXPECT_TRUE(c["stop_reason"].is_null());
  EXPECT_TRUE(c["logprobs"].is_null());
  EXPECT_EQ(j["usage"]["prompt_tokens"], 34);
  EXPECT_EQ(j["usage"]["completion_tokens"], 29);
  EXPECT_EQ(j["usage"]["total_tokens"], 63);
  EXPECT_EQ(j["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
  EXPECT_EQ(r.header("X-Request-Id").substr(0, 4), "req-");
}

TEST_F(OpenAI, TheStreamAddsUpToTheSame) {
  Streamed s = streamed(chat(ask({{"stream", true}})));
  EXPECT_EQ(s.content, reference("chat").output);
  EXPECT_EQ(s.finish_reason, "stop");
  EXPECT_TRUE(s.usage.is_null());
  s = streamed(chat(ask({{"stream", true}, {"stream_options", {{"include_usage", true}}}})));
  EXPECT_EQ(s.content, reference("chat").output);
  EXPECT_EQ(s.usage["completion_tokens"], 29);
  EXPECT_EQ(s.usage["prompt_tokens"], 34);
  // With usage in every chunk.
  Reply r = chat(ask({{"stream", true},
                      {"max_tokens", 3},
                      {"stream_options", {{"continuous_usage_stats", true}}}}));
  EXPECT_GE(Json::parse(r.frames()[0])["usage"]["completion_tokens"], 1);
}

TEST_F(OpenAI, ThinkingIsToldFromContentBySwitchAndDefault) {
  std::string text = reference("think").output;
  size_t end = text.find("</think>");
  std::string reasoning = text.substr(0, end), content = text.substr(end + 8);
  auto with = [&](Json more) {
    Json body = ask();
    body.erase("chat_template_kwargs");
    body.update(more);
    Json j = chat(body).json<Json>();
    body["stream"] = true;
    Streamed s = streamed(chat(body));
    const Json& m = j["choices"][0]["message"];
    std::string got = m.contains("reasoning") ? m["reasoning"].get<std::string>() : "";
    EXPECT_EQ(m.value("reasoning_content", ""), got);
    EXPECT_EQ(s.reasoning, got);
    EXPECT_EQ(s.content, m["content"]);
    EXPECT_EQ(j["usage"]["completion_tokens_details"]["reasoning_tokens"],
              m["content"] == content ? 24 : 0);
    return std::pair(got, m["content"].get<std::string>());
  };
  auto on = std::pair(reasoning, content);
  auto off = std::pair(std::string(), reference("chat").output);
  EXPECT_EQ(with(Json::object()), on);  // V4's default
  EXPECT_EQ(with({{"thinking", {{"type", "enabled"}}}}), on);
  EXPECT_EQ(with({{"thinking", {{"type", "disabled"}}}}), off);
  EXPECT_EQ(with({{"chat_template_kwargs", {{"thinking", true}}}}), on);
  EXPECT_EQ(with({{"chat_template_kwargs", {{"enable_thinking", false}}}}), off);
  EXPECT_EQ(with({{"reasoning_effort", "none"}}), off);
  EXPECT_EQ(with({{"reasoning_effort", "high"}}), on);
  // The explicit field wins.
  EXPECT_EQ(
      with({{"thinking", {{"type", "disabled"}}}, {"chat_template_kwargs", {{"thinking", true}}}}),
      off);
  EXPECT_EQ(with({{"include_reasoning", false}}).first, "");
}

TEST_F(OpenAI, ContentPartsAreJoined) {
  Json parts = Json::array({{{"type", "text"}, {"text", kQuestion}}});
  Json message = {{"content", parts}, {"role", "user"}};
  Json j = chat(ask({{"messages", Json::array({message})}})).json<Json>();
  EXPECT_EQ(j["choices"][0]["message"]["content"], reference("chat").output);
}

TEST_F(OpenAI, StopsEndTheAnswer) {
  Json j = chat(ask({{"stop", " 10 = 6"}})).json<Json>();
  EXPECT_EQ(j["choices"][0]["message"]["content"], "37 + 13 = 50. 50 +");
  EXPECT_EQ(j["choices"][0]["stop_reason"], " 10 = 6");
  EXPECT_EQ(j["choices"][0]["finish_reason"], "stop");
  Streamed s = streamed(chat(ask({{"stop", {"nothing", " 10 = 6"}}, {"stream", true}})));
  EXPECT_EQ(s.content, "37 + 13 = 50. 50 +");
  j = chat(ask({{"stop", "50."}, {"include_stop_str_in_output", true}})).json<Json>();
  EXPECT_EQ(j["choices"][0]["message"]["content"], "37 + 13 = 50.");
  int id = reference("chat").output_ids[4];
  j = chat(ask({{"stop_token_ids", {id}}})).json<Json>();
  EXPECT_EQ(j["choices"][0]["stop_reason"], id);
  j = chat(ask({{"max_completion_tokens", 3}})).json<Json>();
  EXPECT_EQ(j["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(j["usage"]["completion_tokens"], 3);
  j = chat(ask({{"max_tokens", 60}, {"ignore_eos", true}})).json<Json>();
  EXPECT_EQ(j["usage"]["completion_tokens"], 60);
  j = chat(ask({{"max_tokens", 60}, {"min_tokens", 40}})).json<Json>();
  EXPECT_GE(j["usage"]["completion_tokens"], 40);
}

TEST_F(OpenAI, LogprobsOfEachToken) {
  Json body = ask({{"logprobs", true}, {"top_logprobs", 2}});
  Json content = chat(body).json<Json>()["choices"][0]["logprobs"]["content"];
  Reference ref = reference("chat");
  ASSERT_EQ(content.size(), ref.output_ids.size());  // the end token too
  std::string text;
  for (const auto& t : content) {
    EXPECT_LE(t["logprob"], 0);
    ASSERT_EQ(t["top_logprobs"].size(), 2u);
    EXPECT_EQ(t["top_logprobs"][0]["token"], t["token"]);  // greedy
    EXPECT_GE(t["top_logprobs"][0]["logprob"], t["top_logprobs"][1]["logprob"]);
    for (int b : t["bytes"]) text += static_cast<char>(b);
  }
  EXPECT_EQ(text, ref.output + "<｜end▁of▁sentence｜>");
  body["stream"] = true;
  EXPECT_EQ(streamed(chat(body)).logprobs.dump(), content.dump());
  EXPECT_EQ(chat(ask({{"logprobs", true}}))
                .json<Json>()["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
                .size(),
            0u);
  // A bias changes the choice and leaves the scores.
  Json j = chat(ask({{"logprobs", true}, {"logit_bias", {{"17", 100}}}, {"max_tokens", 1}}))
               .json<Json>();
  EXPECT_LT(j["choices"][0]["logprobs"]["content"][0]["logprob"], -1);
}

TEST_F(OpenAI, SeedsAndChoices) {
  Json hot = ask({{"temperature", 2}, {"max_tokens", 12}, {"n", 3}, {"seed", 42}});
  auto texts = [&](const Json& body) {
    std::vector<std::string> out;
    Json j = chat(body).json<Json>();
    for (const auto& c : j["choices"]) {
      EXPECT_EQ(c["index"], out.size());
      out.push_back(c["message"]["content"]);
    }
    EXPECT_EQ(j["usage"]["prompt_tokens"], 34);
    return out;
  };
  auto first = texts(hot);
  ASSERT_EQ(first.size(), 3u);
  EXPECT_EQ(texts(hot), first);
  EXPECT_FALSE(first[0] == first[1] && first[1] == first[2]);
  hot["seed"] = -1;
  EXPECT_NE(texts(hot), first);
}

TEST_F(OpenAI, TheNextTurnIsServedFromTheKeptSession) {
  ServerProgram server;
  Json body = ask();
  Json first = server.post("/v1/chat/completions", body).json<Json>();
  EXPECT_EQ(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  body["messages"].push_back(first["choices"][0]["message"]);
  body["messages"].push_back({{"role", "user"}, {"content", "Thanks."}});
  Json second = server.post("/v1/chat/completions", body).json<Json>();
  // All of the first prompt and answer but the end token, which was never fed.
  EXPECT_EQ(second["usage"]["prompt_tokens_details"]["cached_tokens"], 34 + 29 - 1);
  EXPECT_EQ(second["usage"]["prompt_cache_hit_tokens"], 34 + 29 - 1);
  ServerProgram without({"--no-enable-prefix-caching"});
  without.post("/v1/chat/completions", ask());
  Json fresh = without.post("/v1/chat/completions", body).json<Json>();
  EXPECT_EQ(fresh["usage"]["prompt_cache_hit_tokens"], 0);
  EXPECT_EQ(fresh["choices"][0]["message"], second["choices"][0]["message"]);
}

TEST_F(OpenAI, CompletionsOfTextAndOfIds) {
  Reference ref = reference("5shot");
  auto n = static_cast<int>(ref.output_ids.size());
  Json body = {{"prompt", ref.prompt}, {"temperature", 0}, {"max_tokens", n}};
  Json j = complete(body).json<Json>();
  EXPECT_EQ(j["object"], "text_completion");
  EXPECT_EQ(j["usage"]["prompt_tokens"], ref.prompt_ids.size());
  std::string text = j["choices"][0]["text"];
  EXPECT_EQ(text.substr(0, 38), ref.output.substr(0, 38));
  EXPECT_EQ(j["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(text.find("<｜"), std::string::npos);
  body["skip_special_tokens"] = false;
  std::string special = complete(body).json<Json>()["choices"][0]["text"];
  EXPECT_TRUE(special.starts_with(ref.output.substr(0, 38) + "<｜begin▁of▁sentence｜>")) << special;
  body.erase("skip_special_tokens");
  body["prompt"] = ref.prompt_ids;
  EXPECT_EQ(complete(body).json<Json>()["choices"][0]["text"], text);
  // Several prompts, several choices: prompt-major.
  body = {{"prompt", Json::array({ref.prompt_ids, reference("chat").prompt_ids})},
          {"temperature", 0},
          {"n", 2},
          {"max_tokens", 8}};
  j = complete(body).json<Json>();
  ASSERT_EQ(j["choices"].size(), 4u);
  EXPECT_EQ(j["choices"][0]["text"], j["choices"][1]["text"]);
  EXPECT_EQ(j["choices"][2]["text"], j["choices"][3]["text"]);
  EXPECT_NE(j["choices"][1]["text"], j["choices"][2]["text"]);
  EXPECT_EQ(j["usage"]["prompt_tokens"],
            ref.prompt_ids.size() + reference("chat").prompt_ids.size());
  EXPECT_EQ(j["usage"]["completion_tokens"], 32);
  // The default is 16 tokens.
  j = complete({{"prompt", "Question: 1"}, {"ignore_eos", true}}).json<Json>();
  EXPECT_EQ(j["usage"]["completion_tokens"], 16);
  // The stream.
  body = {{"prompt", ref.prompt}, {"temperature", 0}, {"max_tokens", n}, {"stream", true}};
  std::string joined;
  auto frames = complete(body).frames();
  ASSERT_GE(frames.size(), 2u);
  EXPECT_EQ(frames.back(), "[DONE]");
  frames.pop_back();
  for (const auto& f : frames) joined += Json::parse(f)["choices"][0]["text"];
  EXPECT_EQ(joined, text);
  EXPECT_EQ(Json::parse(frames.back())["choices"][0]["finish_reason"], "length");
}

// What an evaluation of log-likelihoods sends.
TEST_F(OpenAI, EchoScoresThePrompt) {
  Reference ref = reference("5shot");
  Json body = {{"prompt", Json::array({ref.prompt_ids})},
               {"temperature", 0},
               {"max_tokens", 1},
               {"logprobs", 1},
               {"echo", true},
               {"seed", 1234}};
  Json c = complete(body).json<Json>()["choices"][0];
  const Json& l = c["logprobs"];
  size_t n = ref.prompt_ids.size() + 1;
  for (const char* name : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
    ASSERT_EQ(l[name].size(), n) << name;
  EXPECT_TRUE(l["token_logprobs"][0].is_null());
  EXPECT_TRUE(l["top_logprobs"][0].is_null());
  std::string text;
  for (size_t i = 0; i < n; ++i) {
    text += l["tokens"][i];
    EXPECT_TRUE(i == 0 || l["token_logprobs"][i] <= 0);
  }
  EXPECT_TRUE(text.starts_with(ref.prompt));
  // The generated token's score is what the prompt's score would be, one token later.
  body["prompt"][0].push_back(ref.output_ids[0]);
  Json longer = complete(body).json<Json>()["choices"][0]["logprobs"];
  EXPECT_NEAR(longer["token_logprobs"][n - 1], l["token_logprobs"][n - 1], 1e-3);
  body["logprobs"] = nullptr;
  body["max_tokens"] = 3;
  EXPECT_TRUE(complete(body).json<Json>()["choices"][0]["logprobs"].is_null());
}

// The requests of `vllm bench serve` and of InferenceX's fork, and what they count.
TEST_F(OpenAI, BenchmarksGetWhatTheyCount) {
  Json usage = {{"include_usage", true}};
  Json completion = {{"model", "tiny-v4"}, {"prompt", "Question: 1"},
                     {"temperature", 0.0}, {"repetition_penalty", 1.0},
                     {"max_tokens", 24},   {"logprobs", nullptr},
                     {"stream", true},     {"stream_options", usage},
                     {"ignore_eos", true}, {"best_of", 1}};
  Json parts = Json::array({{{"type", "text"}, {"text", "Question: 1"}}});
  Json message = {{"role", "user"}, {"content", parts}};
  Json chat = {{"model", "tiny-v4"}, {"messages", Json::array({message})},
               {"temperature", 0.0}, {"repetition_penalty", 1.0},
               {"stream", true},     {"stream_options", usage},
               {"ignore_eos", true}, {"max_completion_tokens", 24}};
  for (bool is_chat : {false, true}) {
    std::string path = is_chat ? "/v1/chat/completions" : "/v1/completions";
    Reply r = server_->post(path, is_chat ? chat : completion, "x-request-id: bench-7\r\n");
    ASSERT_EQ(r.status, 200) << r.body;
    EXPECT_EQ(r.header("X-Request-Id"), "bench-7");
    int with_choices = 0, tokens = 0;
    for (const std::string& f : r.frames()) {
      if (f == "[DONE]") continue;
      Json j = Json::parse(f);
      with_choices += !j["choices"].empty();
      if (j.contains("usage") && j["usage"].is_object()) tokens = j["usage"]["completion_tokens"];
    }
    EXPECT_GE(with_choices, 1);
    EXPECT_EQ(tokens, 24);
  }
}

TEST_F(OpenAI, ModelsTokensVersionHealth) {
  Json models = server_->get("/v1/models").json<Json>();
  EXPECT_EQ(models["data"][0]["id"], "tiny-v4");
  EXPECT_EQ(models["data"][0]["max_model_len"], 4096);
  EXPECT_EQ(models["data"][0]["root"], kTinyV4);
  EXPECT_EQ(server_->get("/v1/models/tiny-v4").json<Json>()["id"], "tiny-v4");
  EXPECT_EQ(server_->get("/v1/models/other").status, 404);
  EXPECT_EQ(server_->get("/health").status, 200);
  EXPECT_TRUE(server_->get("/version").json<Json>()["version"].is_string());
  Reference ref = reference("chat");
  Json t = server_->post("/tokenize", Json{{"prompt", ref.prompt}, {"return_token_strs", true}})
               .json<Json>();
  EXPECT_EQ(t["tokens"].get<std::vector<int>>(), ref.prompt_ids);
  EXPECT_EQ(t["count"], 34);
  EXPECT_EQ(t["token_strs"].size(), 34u);
  Json from_messages = ask();
  EXPECT_EQ(server_->post("/tokenize", from_messages).json<Json>()["tokens"], t["tokens"]);
  Json info = server_->get("/tokenizer_info").json<Json>();
  EXPECT_EQ(info["bos_token"], "<｜begin▁of▁sentence｜>");
  EXPECT_EQ(info["eos_token"], "<｜end▁of▁sentence｜>");
  Json d = server_->post("/detokenize", Json{{"tokens", ref.prompt_ids}}).json<Json>();
  EXPECT_EQ(d["prompt"], ref.prompt);
}

TEST_F(OpenAI, UnknownAndNullFieldsAreIgnored) {
  Json body = ask({{"store", true}, {"metadata", {{"a", 1}}}, {"verbosity", "low"}, {"foo", 7}});
  for (const char* name : {"stop",
                           "tools",
                           "tool_choice",
                           "logit_bias",
                           "max_tokens",
                           "seed",
                           "n",
                           "top_p",
                           "top_k",
                           "stream",
                           "stream_options",
                           "response_format",
                           "logprobs",
                           "top_logprobs",
                           "thinking",
                           "reasoning_effort",
                           "parallel_tool_calls",
                           "frequency_penalty",
                           "min_p",
                           "user"})
    body[name] = nullptr;
  Reply r = chat(body);
  EXPECT_EQ(r.status, 200) << r.body;
  EXPECT_EQ(r.json<Json>()["choices"][0]["message"]["content"], reference("chat").output);
  EXPECT_EQ(chat(ask({{"tools", Json::array()}})).status, 200);
  EXPECT_EQ(chat(ask({{"top_k", -1}, {"repetition_penalty", 1.0}})).status, 200);
}

TEST_F(OpenAI, WrongRequestsGetASentenceAboutTheField) {
  auto refused = [&](Json more, const std::string& part, int status = 400) {
    for (bool stream : {false, true}) {
      if (more.contains("stream_options") && stream) continue;
      Json body = ask(more);
      if (stream) body["stream"] = true;
      Reply r = chat(body);
      EXPECT_EQ(r.status, status) << more << r.body;
      Json e = r.json<Json>()["error"];
      EXPECT_NE(e["message"].get<std::string>().find(part), std::string::npos) << r.body;
      EXPECT_TRUE(e["type"].is_string());
      EXPECT_TRUE(e.contains("param") && e.contains("code"));
    }
  };
  refused({{"temperature", -1}}, "temperature is -1");
  refused({{"temperature", "hot"}}, "temperature must be a number");
  refused({{"top_p", 1.1}}, "top_p");
  refused({{"top_k", -2}}, "top_k");
  refused({{"min_p", 2}}, "min_p");
  refused({{"n", 0}}, "n is 0");
  refused({{"max_tokens", 0}}, "max_tokens");
  refused({{"max_tokens", 5000}}, "maximum context length is 4096 tokens");
  refused({{"min_tokens", 9}, {"max_tokens", 5}}, "min_tokens");
  refused({{"stop", ""}}, "stop");
  refused({{"stop", 7}}, "stop");
  refused({{"top_logprobs", 3}}, "top_logprobs");
  refused({{"logprobs", true}, {"top_logprobs", 21}}, "top_logprobs");
  refused({{"logprobs", 3}}, "logprobs");
  refused({{"stream_options", {{"include_usage", true}}}}, "stream_options");
  refused({{"logit_bias", {{"999999", 1}}}}, "logit_bias");
  refused({{"logit_bias", {{"-1", 1}}}}, "logit_bias");
  refused({{"logit_bias", {{"abc", 1}}}}, "logit_bias");
  refused({{"logit_bias", {{"5", 101}}}}, "logit_bias");
  refused({{"stop_token_ids", {999999}}}, "stop_token_ids");
  refused({{"tool_choice", "required"}}, "tool_choice");
  refused({{"reasoning_effort", "huge"}}, "reasoning_effort");
  refused({{"messages", Json::array()}}, "no messages");
  refused({{"messages", nullptr}}, "messages");
  refused({{"messages", Json::array({{{"role", "foo"}, {"content", "x"}}})}}, "foo");
  refused({{"messages", Json::array({{{"role", "user"}, {"content", 7}}})}}, "content");
  refused({{"response_format", {{"type", "xml"}}}}, "response_format.type");
  refused({{"model", "gpt-9"}}, "`gpt-9` does not exist", 404);
  Json function = {{"name", "f"}};
  Json tools = Json::array({{{"type", "function"}, {"function", function}}});
  refused(
      {{"tools", tools}, {"tool_choice", {{"type", "function"}, {"function", {{"name", "g"}}}}}},
      "\"g\"");
  for (Json prompt : {Json(""), Json::array(), Json::array({""}), Json::array({Json::array()}),
                      Json({999999}), Json({-1}), Json({1.5}), Json(7)}) {
    Reply r = complete({{"prompt", prompt}});
    EXPECT_EQ(r.status, 400) << prompt << r.body;
  }
  EXPECT_EQ(complete({{"prompt", "x"}}).status, 200);
}

TEST_F(OpenAI, TheContextIsExact) {
  ServerProgram server({"--max-model-len", "40"});
  auto status = [&](int prompt, Json max_tokens) {
    Json body = {{"prompt", std::vector<int>(prompt, 5)}, {"max_tokens", max_tokens}};
    Reply r = server.post("/v1/completions", body);
    if (r.status != 200) {
      EXPECT_EQ(r.json<Json>()["error"]["code"], "context_length_exceeded");
      EXPECT_EQ(r.json<Json>()["error"]["param"], "input_tokens");
    }
    return r.status;
  };
  EXPECT_EQ(status(39, 1), 200);
  EXPECT_EQ(status(40, 1), 400);
  EXPECT_EQ(status(400, 1), 400);
  EXPECT_EQ(status(30, 10), 200);
  EXPECT_EQ(status(30, 11), 400);
  // Without a limit the answer may fill the context.
  Json j = server.post("/v1/chat/completions", ask({{"ignore_eos", true}})).json<Json>();
  EXPECT_EQ(j["usage"]["total_tokens"], 40);
  EXPECT_EQ(j["choices"][0]["finish_reason"], "length");
}

}  // namespace
}  // namespace hadal
