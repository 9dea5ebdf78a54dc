// Hundreds of mixed requests from several threads at once. Every canary among them gets the
// reference's answer, and in the end nothing is left running, waiting or held.
#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "server/client.h"

namespace hadal {
namespace {

using Json = nlohmann::ordered_json;

Json ask(const Json& more = Json::object()) { return chat_request(more); }

// One request of kind `kind`; false where its answer is not what it must be.
bool one(const ServerProgram& server, int kind, int seed, const std::string& canary) {
  Json hot = {{"temperature", 1.5}, {"seed", seed}, {"max_tokens", 5 + seed % 40}};
  switch (kind) {
    case 0: {
      Reply r = server.post("/v1/chat/completions", ask());
      return r.status == 200 && r.json<Json>()["choices"][0]["message"]["content"] == canary;
    }
    case 1: {
      std::string text;
      for (const auto& f : server.post("/v1/chat/completions", ask({{"stream", true}})).frames())
        if (f != "[DONE]") text += Json::parse(f)["choices"][0]["delta"].value("content", "");
      return text == canary;
    }
    case 2:  // with thinking, hot
      hot["chat_template_kwargs"] = {{"thinking", true}};
      return server.post("/v1/chat/completions", ask(hot)).status == 200;
    case 3: {  // leaves somewhere in the stream
      hot["stream"] = true;
      hot["max_tokens"] = 1000;
      Connection c(server.port());
      c.send("POST", "/v1/chat/completions", ask(hot).dump());
      return seed % 2 == 0 || c.wait_for("data: ");
    }
    case 4: {
      Json body = {{"prompt", "Question: " + std::to_string(seed)},
                   {"max_tokens", 3},
                   {"echo", true},
                   {"logprobs", 2},
                   {"n", 1 + seed % 3}};
      Reply r = server.post("/v1/completions", body);
      return r.status == 200 && r.json<Json>()["choices"].size() == 1u + seed % 3;
    }
    case 5:
      return server.post("/v1/chat/completions", ask({{"temperature", -1}})).status == 400;
    case 6:
      return server.get("/metrics").status == 200 && server.get("/health").status == 200;
    default: {
      Json body = {{"model", "tiny-v4"}, {"max_tokens", 100}, {"temperature", 0}};
      body["messages"] = Json::array({{{"role", "user"}, {"content", kQuestion}}});
      body["thinking"] = {{"type", "disabled"}};
      Reply r = server.post("/v1/messages", body);
      return r.status == 200 && r.json<Json>()["content"][0]["text"] == canary;
    }
  }
}

TEST(Soak, CanariesAnswerTheSameAmongAllElse) {
  ServerProgram server({"--max-num-seqs", "6", "--max-num-batched-tokens", "48"});
  std::string canary = read_reference<Json>("chat").output;
  constexpr int kThreads = 8, kEach = 48;
  std::vector<std::thread> threads;
  std::vector<std::string> wrong(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        int kind = (i * 5 + t) % 8;
        if (!one(server, kind, i * kThreads + t, canary)) wrong[t] += std::to_string(kind) + " ";
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& w : wrong) EXPECT_EQ(w, "") << "kinds of requests that went wrong";
  EXPECT_TRUE(server.becomes_idle());
  EXPECT_EQ(server.metric("vllm:kv_cache_usage_perc"), 0);
  EXPECT_EQ(server.get("/metrics").body.find("finished_reason=\"error\"} 0\n") == std::string::npos,
            false);
  server.program().terminate();
  EXPECT_EQ(server.program().finish().status, 0);
}

}  // namespace
}  // namespace hadal
