// What clients do wrong, on purpose or not: each gets a clear answer or a closed connection, and
// everyone else is served meanwhile.
#include <nlohmann/json.hpp>

#include "server/client.h"

namespace hadal {
namespace {

using Json = nlohmann::ordered_json;

Reference reference(const std::string& kind) { return read_reference<Json>(kind); }
Json ask(const Json& more = Json::object()) { return chat_request(more); }

// The canary: the reference's answer still comes.
void expect_service(const ServerProgram& server) {
  Reply r = server.post("/v1/chat/completions", ask());
  ASSERT_EQ(r.status, 200) << r.body;
  EXPECT_EQ(r.json<Json>()["choices"][0]["message"]["content"], reference("chat").output);
  EXPECT_EQ(server.get("/health").status, 200);
}

// Goes on for as long as it is let.
Json endless(Json more = Json::object()) {
  Json body = ask({{"ignore_eos", true}, {"max_tokens", 4000}});
  body.update(more);
  return body;
}

TEST(Abuse, WrongBodies) {
  ServerProgram server;
  auto status = [&](const std::string& body) {
    Reply r = server.post("/v1/chat/completions", body);
    EXPECT_TRUE(r.json<Json>()["error"]["message"].is_string()) << r.body;
    return r.status;
  };
  EXPECT_EQ(status(""), 400);
  EXPECT_EQ(status("{"), 400);
  EXPECT_EQ(status("[]"), 400);
  EXPECT_EQ(status("null"), 400);
  EXPECT_EQ(status(R"({"temperature": NaN})"), 400);
  EXPECT_EQ(status(R"({"temperature": 1e999, "messages": []})"), 400);
  EXPECT_EQ(status("{\"messages\": [{\"role\": \"user\", \"content\": \"\xff\xfe\"}]}"), 400);
  EXPECT_EQ(status(std::string(100000, '[')), 400);
  EXPECT_EQ(status(R"({"messages": )" + std::string(200000, '[') + std::string(200000, ']') + "}"),
            400);
  EXPECT_EQ(status(std::string("{\"a\": \"\0\"}", 10)), 400);
  EXPECT_EQ(server.post("/v1/completions", "{\"prompt\": \"a\\u0000b\", \"max_tokens\": 1}").status,
            200);
  expect_service(server);
}

TEST(Abuse, WrongRoutesMethodsAndTypes) {
  ServerProgram server;
  EXPECT_EQ(server.get("/").status, 404);
  EXPECT_EQ(server.get("/v1/chat/completions").status, 405);
  EXPECT_EQ(server.post("/v1/nothing", "{}").status, 404);
  EXPECT_EQ(server.post("/health", "{}").status, 404);
  Connection c(server.port());
  c.send("DELETE", "/v1/models");
  EXPECT_EQ(c.receive().status, 404);
  c.send("HEAD", "/health");
  EXPECT_EQ(c.receive(false).status, 200);
  c.send("HEAD", "/metrics");
  EXPECT_EQ(c.receive(false).status, 200);
  c.send_raw(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: text/xml\r\n"
      "Content-Length: 2\r\n\r\n{}");
  EXPECT_EQ(c.receive().status, 415);
  c.send_raw(
      "POST /tokenize HTTP/1.1\r\nHost: x\r\n"
      "Content-Type: application/json; charset=utf-8\r\nContent-Length: 15\r\n\r\n"
      "{\"prompt\": \"a\"}");
  EXPECT_EQ(c.receive().status, 200);
}

TEST(Abuse, BytesThatAreNoHttp) {
  ServerProgram server;
  for (const std::string& bytes :
       {std::string("\r\n\r\n"), std::string("nonsense\r\n\r\n"),
        std::string("\0\0\0\0\r\n\r\n", 8), std::string("GET\r\n\r\n"),
        std::string("GET / HTTP/9.9\r\n\r\n"),
        std::string("POST /v1/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n"),
        std::string(
            "POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n"),
        std::string("POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        "GET / HTTP/1.1\r\nX: " + std::string(200000, 'a') + "\r\n\r\n",
        "GET /" + std::string(200000, 'a') + " HTTP/1.1\r\n\r\n"}) {
    Connection c(server.port());
    c.send_raw(bytes);
    shutdown(c.fd(), SHUT_WR);
    Reply r = c.receive();
    EXPECT_TRUE(r.status == 0 || (r.status >= 400 && r.status < 500))
        << r.status << " " << bytes.substr(0, 60);
  }
  expect_service(server);
}

TEST(Abuse, ABodyThatIsTooLarge) {
  ServerProgram server({"--max-body-mib", "4"});
  Connection c(server.port());
  std::string megabyte(1 << 20, ' ');
  ASSERT_TRUE(
      c.send_raw("POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                 "Content-Type: application/json\r\nContent-Length: 104857600\r\n\r\n"));
  for (int i = 0; i < 100 && c.send_raw(megabyte); ++i) {
  }
  Reply r = c.receive();
  EXPECT_TRUE(r.status == 413 || r.status == 0) << r.status;
  // The same in chunks, which do not say how many will come.
  Connection chunked(server.port());
  chunked.send_raw(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
      "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 100 && chunked.send_raw("100000\r\n" + megabyte + "\r\n"); ++i) {
  }
  r = chunked.receive();
  EXPECT_TRUE(r.status == 413 || r.status == 0) << r.status;
  // Just below is read.
  std::string body =
      "{\"prompt\": \"a\", \"max_tokens\": 1, \"x\": \"" + std::string(3 << 20, 'x') + "\"}";
  EXPECT_EQ(server.post("/v1/completions", body).status, 200);
  expect_service(server);
}

TEST(Abuse, ChunkedUploadsPipeliningAndKeptConnections) {
  ServerProgram server;
  Connection c(server.port());
  std::string head = "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
  c.send_raw(head +
             "Transfer-Encoding: chunked\r\n\r\n7\r\n{\"promp\r\n8\r\nt\": \"a\"}\r\n0\r\n\r\n");
  EXPECT_EQ(c.receive().status, 200);
  // Requests sent ahead are answered one after the other.
  std::string body = ask({{"max_tokens", 2}}).dump();
  std::string post =
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: "
      "application/json\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body;
  std::string get = "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n";
  c.send_raw(post + get + get + post + get);
  EXPECT_EQ(c.receive().json<Json>()["object"], "chat.completion");
  EXPECT_EQ(c.receive().json<Json>()["object"], "list");
  EXPECT_EQ(c.receive().json<Json>()["object"], "list");
  EXPECT_EQ(c.receive().json<Json>()["object"], "chat.completion");
  EXPECT_EQ(c.receive().json<Json>()["object"], "list");
}

TEST(Abuse, ClientsThatLeaveFreeTheirPlace) {
  ServerProgram server({"--max-num-seqs", "2", "--max-num-batched-tokens", "16"});
  std::string long_text;
  for (int i = 0; i < 120; ++i) long_text += kQuestion + " ";
  Json long_prompt = ask({{"messages", Json::array({{{"role", "user"}, {"content", long_text}}})}});
  std::vector<Connection> gone;
  for (bool stream : {true, false}) {
    for (const Json& body : {endless({{"stream", stream}}), long_prompt}) {
      Connection c(server.port());
      c.send("POST", "/v1/chat/completions", body.dump());
      gone.push_back(std::move(c));
    }
  }
  // Two run (one of them reads its long prompt), two wait.
  auto two_and_two = [&] {
    return server.metric("vllm:num_requests_running") == 2 &&
           server.metric("vllm:num_requests_waiting") == 2;
  };
  for (int i = 0; i < 300 && !two_and_two(); ++i) usleep(20000);
  EXPECT_TRUE(two_and_two());
  for (Connection& c : gone) c.close_now();
  EXPECT_TRUE(server.becomes_idle());
  EXPECT_EQ(server.metric("vllm:kv_cache_usage_perc"), 0);
  std::string metrics = server.get("/metrics").body;
  EXPECT_NE(metrics.find("finished_reason=\"abort\"} 4\n"), std::string::npos) << metrics;
  expect_service(server);
}

TEST(Abuse, AFullQueueSaysSo) {
  ServerProgram server({"--max-num-seqs", "1", "--max-num-queued-reqs", "1"});
  Connection first(server.port()), second(server.port());
  first.send("POST", "/v1/chat/completions", endless({{"stream", true}}).dump());
  ASSERT_TRUE(first.wait_for("data: "));
  second.send("POST", "/v1/chat/completions", ask().dump());
  for (int i = 0; i < 300 && server.metric("vllm:num_requests_waiting") < 1; ++i) usleep(20000);
  Reply r = server.post("/v1/chat/completions", ask());
  EXPECT_EQ(r.status, 503);
  EXPECT_EQ(r.header("Retry-After"), "1");
  EXPECT_EQ(r.json<Json>()["error"]["code"], 503);
  Json body = {{"model", "tiny-v4"},
               {"max_tokens", 5},
               {"messages", Json::array({{{"role", "user"}, {"content", "hi"}}})}};
  r = server.post("/v1/messages", body);
  EXPECT_EQ(r.status, 529);
  EXPECT_EQ(r.json<Json>()["error"]["type"], "overloaded_error");
  EXPECT_EQ(server.post("/v1/chat/completions", ask({{"n", 3}})).status, 400);  // never fits
  EXPECT_EQ(server.post("/v1/completions", Json{{"prompt", "x"}, {"n", 3}}).status, 400);
  first.close_now();
  EXPECT_EQ(second.receive().json<Json>()["choices"][0]["message"]["content"],
            reference("chat").output);
  expect_service(server);
}

TEST(Abuse, IdleAndHalfOpenConnections) {
  ServerProgram server;
  std::vector<Connection> idle;
  for (int i = 0; i < 400; ++i) {
    idle.emplace_back(server.port());
    ASSERT_TRUE(idle.back().connected()) << i;
    if (i % 4 == 1) idle.back().send_raw("POST /v1/completions HTTP/1.1\r\nHos");
    if (i % 4 == 2) idle.back().send_raw("POST /tokenize HTTP/1.1\r\nContent-Length: 100\r\n\r\n{");
    if (i % 4 == 3) shutdown(idle.back().fd(), SHUT_WR);
  }
  expect_service(server);
  idle.clear();
  expect_service(server);
}

TEST(Abuse, OutOfSocketsIsNotTheEnd) {
  Program limited({"serve", kTinyV4, "--port", "0", "--disable-log-requests"}, false, 40);
  size_t at = limited.wait_for("at http://127.0.0.1:", 0, /*err=*/true);
  limited.wait_for("/v1\n", at, true);
  int port = std::atoi(limited.error_text().c_str() + at);
  {
    std::vector<Connection> many;
    for (int i = 0; i < 100; ++i) many.emplace_back(port);
  }
  Connection c(port);
  c.send("GET", "/health");
  EXPECT_EQ(c.receive().status, 200);
  limited.terminate();
  EXPECT_EQ(limited.finish().status, 0);
}

// More streams than anybody reads at once, and readers that read nothing.
TEST(Abuse, SlowReadersHoldNobodyUp) {
  ServerProgram server({"--max-num-seqs", "8"});
  std::vector<Connection> slow;
  for (int i = 0; i < 6; ++i) {
    slow.emplace_back(server.port());
    slow.back().send("POST", "/v1/chat/completions",
                     endless({{"stream", true}, {"max_tokens", 600}}).dump());
  }
  for (int i = 0; i < 3; ++i) expect_service(server);
  // The answers were made and wait in the server for their readers.
  EXPECT_TRUE(server.becomes_idle());
  for (Connection& c : slow) {
    Reply r = c.receive();
    EXPECT_EQ(r.status, 200);
    EXPECT_EQ(r.frames().back(), "[DONE]");
  }
}

TEST(Abuse, KeysAndCrossOriginHeaders) {
  ServerProgram server({"--api-key", "secret", "--api-key", "other"});
  EXPECT_EQ(server.get("/v1/models").status, 401);
  EXPECT_EQ(server.get("/v1/models", "Authorization: Bearer wrong\r\n").status, 401);
  EXPECT_EQ(server.get("/v1/models", "Authorization: Bearer secret\r\n").status, 200);
  EXPECT_EQ(server.get("/v1/models", "x-api-key: other\r\n").status, 200);
  EXPECT_EQ(server.get("/v1/models", "x-api-key: \r\n").status, 401);
  EXPECT_EQ(server.get("/health").status, 200);
  EXPECT_EQ(server.get("/metrics").status, 200);
  Reply r = server.post("/v1/messages", "{}");
  EXPECT_EQ(r.status, 401);
  EXPECT_EQ(r.json<Json>()["error"]["type"], "authentication_error");
  Connection c(server.port());
  c.send("OPTIONS", "/v1/chat/completions", "",
         "Origin: http://a\r\nAccess-Control-Request-Headers: authorization, content-type\r\n");
  r = c.receive();
  EXPECT_EQ(r.status, 204);
  EXPECT_EQ(r.header("Access-Control-Allow-Origin"), "*");
  EXPECT_EQ(r.header("Access-Control-Allow-Headers"), "authorization, content-type");
  r = server.get("/v1/models", "x-api-key: other\r\nX-Request-Id: my-id\r\n");
  EXPECT_EQ(r.header("X-Request-Id"), "my-id");
  EXPECT_EQ(r.header("Access-Control-Allow-Origin"), "*");
}

TEST(Abuse, ASignalLetsRequestsEnd) {
  ServerProgram server;
  Connection running(server.port()), kept(server.port());
  kept.send("GET", "/v1/models");
  EXPECT_EQ(kept.receive().status, 200);
  running.send("POST", "/v1/chat/completions",
               endless({{"stream", true}, {"max_tokens", 400}}).dump());
  ASSERT_TRUE(running.wait_for("data: "));
  server.program().terminate();
  server.program().wait_for("ending after 1 running requests", 0, true);
  EXPECT_FALSE(Connection(server.port()).connected());
  kept.send("POST", "/v1/chat/completions", ask().dump());
  EXPECT_EQ(kept.receive().status, 503);
  Reply r = running.receive();
  ASSERT_GE(r.frames().size(), 2u);
  EXPECT_EQ(r.frames().back(), "[DONE]");
  EXPECT_EQ(Json::parse(r.frames()[r.frames().size() - 2])["choices"][0]["finish_reason"],
            "length");
  EXPECT_EQ(server.program().finish().status, 0);
}

TEST(Abuse, ASecondSignalStopsAtOnce) {
  ServerProgram server;
  Connection running(server.port()), waiting(server.port());
  running.send("POST", "/v1/chat/completions", endless({{"stream", true}}).dump());
  waiting.send("POST", "/v1/chat/completions", endless().dump());
  ASSERT_TRUE(running.wait_for("data: "));
  server.program().terminate();
  server.program().wait_for("again to stop at once", 0, true);
  server.program().interrupt();
  EXPECT_EQ(server.program().finish().status, 130);
}

TEST(Abuse, FlagsThatCannotWork) {
  auto refused = [](std::vector<std::string> flags, const std::string& part) {
    flags.insert(flags.begin(), {"serve", kTinyV4});
    expect_refused(hadal_program(flags), 1, part);
  };
  refused({"--port", "70000"}, "--port is 70000");
  refused({"--max-num-seqs", "0"}, "--max-num-seqs is 0");
  refused({"--max-num-seqs", "600"}, "--max-num-batched-tokens is 512");
  refused({"--max-num-queued-reqs", "-1"}, "--max-num-queued-reqs is -1");
  refused({"--api-key", ""}, "--api-key is empty");
  refused({"--chat-format", "v9"}, "v9");
  refused({"--default-chat-template-kwargs", "{"}, "--default-chat-template-kwargs");
  refused({"--default-chat-template-kwargs", "[1]"}, "give an object");
  refused({"--default-chat-template-kwargs", R"({"thinking": 1})"}, "give an object");
  refused({"--host", "256.1.1.1", "--port", "0"}, "--host 256.1.1.1");
  refused({"--max-model-len", "1", "--port", "0"}, "--max-model-len is 1");
  ServerProgram server;
  refused({"--port", std::to_string(server.port())}, "choose another --port");
}

}  // namespace
}  // namespace hadal
