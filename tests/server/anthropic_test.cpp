// /v1/messages over a real socket: the reference's answer as blocks, as a whole and as events.
#include <nlohmann/json.hpp>

#include "server/client.h"

namespace hadal {
namespace {

using Json = nlohmann::ordered_json;

Reference reference(const std::string& kind) { return read_reference<Json>(kind); }

class Anthropic : public testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = new ServerProgram(); }
  static void TearDownTestSuite() { delete server_; }
  static ServerProgram* server_;
};
ServerProgram* Anthropic::server_ = nullptr;

Json request(Json more = Json::object()) {
  Json body = {{"model", "tiny-v4"},
               {"max_tokens", 200},
               {"temperature", 0},
               {"messages", Json::array({{{"role", "user"}, {"content", kQuestion}}})}};
  body.update(more);
  return body;
}
const Json kOff = {{"thinking", {{"type", "disabled"}}}};
const Json kOn = {{"thinking", {{"type", "enabled"}, {"budget_tokens", 1024}}}};

TEST_F(Anthropic, AnswersInBlocks) {
  Reply r =
      server_->post("/v1/messages?beta=true", request(kOff), "anthropic-version: 2023-06-01\r\n");
  ASSERT_EQ(r.status, 200) << r.body;
  Json j = r.json<Json>();
  EXPECT_EQ(j["type"], "message");
  EXPECT_EQ(j["role"], "assistant");
  EXPECT_EQ(j["model"], "tiny-v4");
  ASSERT_EQ(j["content"].size(), 1u);
  EXPECT_EQ(j["content"][0]["type"], "text");
  EXPECT_EQ(j["content"][0]["text"], reference("chat").output);
  EXPECT_EQ(j["stop_reason"], "end_turn");
  EXPECT_TRUE(j["stop_sequence"].is_null());
  EXPECT_EQ(j["usage"]["input_tokens"], 34);
  EXPECT_EQ(j["usage"]["cache_read_input_tokens"], 0);
  EXPECT_EQ(j["usage"]["output_tokens"], 29);

  j = server_->post("/v1/messages", request(kOn)).json<Json>();
  std::string text = reference("think").output;
  size_t end = text.find("</think>");
  ASSERT_EQ(j["content"].size(), 2u);
  EXPECT_EQ(j["content"][0]["type"], "thinking");
  EXPECT_EQ(j["content"][0]["thinking"], text.substr(0, end));
  EXPECT_TRUE(j["content"][0]["signature"].is_string());
  EXPECT_EQ(j["content"][1]["text"], text.substr(end + 8));
}

TEST_F(Anthropic, TheEventsBuildTheSameMessage) {
  Json body = request(kOn);
  Json whole = server_->post("/v1/messages", body).json<Json>();
  body["stream"] = true;
  Reply r = server_->post("/v1/messages", body);
  EXPECT_EQ(r.header("Content-Type"), "text/event-stream; charset=utf-8");
  Json message, blocks = Json::array();
  std::vector<std::string> types;
  int open = -1;
  for (const std::string& frame : r.frames()) {
    Json e = Json::parse(frame);
    std::string type = e["type"];
    EXPECT_NE(r.body.find("event: " + type + "\ndata: " + frame + "\n\n"), std::string::npos);
    if (types.empty() || types.back() != type) types.push_back(type);
    if (type == "message_start") message = e["message"];
    if (type == "content_block_start") {
      EXPECT_EQ(open, -1);
      open = e["index"];
      EXPECT_EQ(open, static_cast<int>(blocks.size()));
      blocks.push_back(e["content_block"]);
    }
    if (type == "content_block_delta") {
      EXPECT_EQ(e["index"], open);
      const Json& d = e["delta"];
      for (const char* part : {"text", "thinking", "signature"})
        if (d.contains(part))
          blocks[open][part] = blocks[open][part].get<std::string>() + d[part].get<std::string>();
    }
    if (type == "content_block_stop") {
      EXPECT_EQ(e["index"], open);
      open = -1;
    }
    if (type == "message_delta") {
      message["stop_reason"] = e["delta"]["stop_reason"];
      EXPECT_EQ(e["usage"]["output_tokens"], whole["usage"]["output_tokens"]);
    }
  }
  EXPECT_EQ(types, (std::vector<std::string>{
                       "message_start", "ping", "content_block_start", "content_block_delta",
                       "content_block_stop", "content_block_start", "content_block_delta",
                       "content_block_stop", "message_delta", "message_stop"}));
  EXPECT_EQ(blocks.dump(), whole["content"].dump());
  EXPECT_EQ(message["stop_reason"], "end_turn");
}

TEST_F(Anthropic, StopsAndLimits) {
  Json body = request(kOff);
  body["stop_sequences"] = {" 10 = 6"};
  Json j = server_->post("/v1/messages", body).json<Json>();
  EXPECT_EQ(j["stop_reason"], "stop_sequence");
  EXPECT_EQ(j["stop_sequence"], " 10 = 6");
  EXPECT_EQ(j["content"][0]["text"], "37 + 13 = 50. 50 +");
  body["max_tokens"] = 3;
  EXPECT_EQ(server_->post("/v1/messages", body).json<Json>()["stop_reason"], "max_tokens");
}

// The prompt that blocks become is the one that the OpenAI endpoint makes of the same talk.
TEST_F(Anthropic, BlocksBecomeTheSamePrompt) {
  Json tool = {{"name", "f"}, {"description", "d"}, {"input_schema", {{"type", "object"}}}};
  Json blocks = request(kOn);
  blocks["system"] = Json::array(
      {{{"type", "text"}, {"text", "x-anthropic-billing-header: cc_version=1"}},
       {{"type", "text"}, {"text", "Be brief."}, {"cache_control", {{"type", "ephemeral"}}}}});
  blocks["tools"] = Json::array({tool});
  blocks["messages"] = Json::array(
      {{{"role", "user"}, {"content", Json::array({{{"type", "text"}, {"text", "go"}}})}},
       {{"role", "assistant"},
        {"content",
         Json::array(
             {{{"type", "thinking"}, {"thinking", "hm"}, {"signature", "s"}},
              {{"type", "text"}, {"text", "Yes."}},
              {{"type", "tool_use"}, {"id", "t1"}, {"name", "f"}, {"input", {{"a", 1}}}},
              {{"type", "tool_use"}, {"id", "t2"}, {"name", "f"}, {"input", {{"a", 2}}}}})}},
       {{"role", "user"},
        {"content",
         Json::array({{{"type", "tool_result"}, {"tool_use_id", "t2"}, {"content", "two"}},
                      {{"type", "tool_result"},
                       {"tool_use_id", "t1"},
                       {"content", Json::array({{{"type", "text"}, {"text", "one"}}})}},
                      {{"type", "text"}, {"text", "and?"}}})}}});
  auto call = [](const char* id, const char* arguments) {
    Json function = {{"name", "f"}, {"arguments", arguments}};
    return Json{{"id", id}, {"type", "function"}, {"function", function}};
  };
  Json function = {{"name", "f"}, {"description", "d"}, {"parameters", {{"type", "object"}}}};
  Json openai = {
      {"thinking", {{"type", "enabled"}}},
      {"tools", Json::array({{{"type", "function"}, {"function", function}}})},
      {"messages",
       Json::array(
           {{{"role", "system"}, {"content", "Be brief."}},
            {{"role", "user"}, {"content", "go"}},
            {{"role", "assistant"},
             {"content", "Yes."},
             {"reasoning_content", "hm"},
             {"tool_calls", Json::array({call("t1", "{\"a\": 1}"), call("t2", "{\"a\": 2}")})}},
            {{"role", "tool"}, {"tool_call_id", "t2"}, {"content", "two"}},
            {{"role", "tool"}, {"tool_call_id", "t1"}, {"content", "one"}},
            {{"role", "user"}, {"content", "and?"}}})}};
  Json tokens = server_->post("/tokenize", openai).json<Json>();
  ASSERT_GT(tokens["count"], 100);
  Reply count = server_->post("/v1/messages/count_tokens", blocks);
  EXPECT_EQ(count.json<Json>()["input_tokens"], tokens["count"]) << count.body;
  Json j = server_->post("/v1/messages", blocks).json<Json>();
  EXPECT_EQ(
      j["usage"]["input_tokens"].get<int>() + j["usage"]["cache_read_input_tokens"].get<int>(),
      tokens["count"]);
}

TEST_F(Anthropic, ErrorsHaveTheirOwnShape) {
  auto refused = [&](Json body, int status, const std::string& type, const std::string& part) {
    Reply r = server_->post("/v1/messages", body);
    EXPECT_EQ(r.status, status) << r.body;
    Json j = r.json<Json>();
    EXPECT_EQ(j["type"], "error");
    EXPECT_EQ(j["error"]["type"], type);
    EXPECT_NE(j["error"]["message"].get<std::string>().find(part), std::string::npos) << r.body;
  };
  Json body = request();
  body.erase("max_tokens");
  refused(body, 400, "invalid_request_error", "max_tokens is missing");
  refused(request({{"model", "claude"}}), 404, "not_found_error", "claude");
  refused(request({{"max_tokens", 100000}}), 400, "invalid_request_error", "maximum context");
  refused(request({{"messages", 7}}), 400, "invalid_request_error", "messages");
  Json image = {{"type", "image"}, {"source", {{"type", "base64"}}}};
  refused(request({{"messages", Json::array({{{"role", "user"}, {"content", {image}}}})}}), 400,
          "invalid_request_error", "\"image\"");
  Json search = {{"type", "web_search_20250305"}, {"name", "web_search"}};
  refused(request({{"tools", Json::array({search})}}), 400, "invalid_request_error", "web_search");
  refused(request({{"tool_choice", {{"type", "any"}}}}), 400, "invalid_request_error", "tools");
  ServerProgram any({"--any-model-name"});
  EXPECT_EQ(any.post("/v1/messages", request({{"model", "claude"}})).json<Json>()["model"],
            "claude");
}

}  // namespace
}  // namespace hadal
