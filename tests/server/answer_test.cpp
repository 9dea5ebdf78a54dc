// Tool calls from tokens to both APIs, without an engine: the trained model makes none, so recorded
// texts are tokenised and fed as if it had.
#include "server/answer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/anthropic_shape.h"
#include "server/openai_shapes.h"

namespace hadal {
namespace {

using Json = nlohmann::ordered_json;

const std::string kCalls =
    "I look.\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"weather\">\n"
    "<｜DSML｜parameter name=\"city\" string=\"true\">Zürich \"süd\"</｜DSML｜parameter>\n"
    "<｜DSML｜parameter name=\"days\" string=\"false\">3</｜DSML｜parameter>\n"
    "</｜DSML｜invoke>\n<｜DSML｜invoke name=\"now\">\n\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>";

class Answers : public testing::Test {
 protected:
  Answers() : tokenizer_(Tokenizer::load(std::string(HADAL_MODELS) + "/tiny-v4/tokenizer.json")) {}

  struct Told {
    Choice choice;
    std::string stream;  // by the shape
    int fed = 0;
  };
  // Feeds `text`, token by token, until the writer has enough.
  Told tell(const std::string& text, AnswerOptions options, AnswerShape& shape) {
    auto ids = tokenizer_.value().encode(text, SpecialTokens::kParse);
    bool news = false;
    auto mail = std::make_shared<AnswerMail>([&] { news = true; });
    AnswerWriter writer(tokenizer_.value(), options, false, {}, mail);
    Told told;
    std::vector<Choice> choices(1);
    choices[0].prompt = {0};
    auto look = [&] {
      if (!std::exchange(news, false)) return;
      AnswerPiece piece = mail->take();
      add_piece(choices[0], piece);
      told.stream += shape.stream_piece(choices, 0, piece);
    };
    writer.on_start(0);
    bool go_on = true;
    for (int32_t id : ids) {
      if (!go_on) break;
      GeneratedToken token{id, 0, {}};
      go_on = writer.on_token(token, false);
      ++told.fed;
      look();
    }
    writer.on_end({FinishReason::kStop, ""});
    look();
    told.stream += shape.stream_end(choices);
    told.choice = choices[0];
    return told;
  }

  Result<Tokenizer> tokenizer_;
};

OpenAIShapeOptions chat_options(const Tokenizer& tokenizer) {
  OpenAIShapeOptions o;
  o.tokenizer = &tokenizer;
  o.id = "chatcmpl-1";
  o.model = "m";
  return o;
}

std::vector<Json> frames(const std::string& stream) {
  std::vector<Json> out;
  for (size_t at = 0; (at = stream.find("data: {", at)) != std::string::npos;) {
    at += 6;
    out.push_back(Json::parse(stream.substr(at, stream.find("\n\n", at) - at)));
  }
  return out;
}

TEST_F(Answers, CallsInAChatCompletion) {
  auto shape = chat_shape(chat_options(tokenizer_.value()));
  AnswerOptions options;
  options.tools = true;
  Told told = tell(kCalls, options, *shape);
  Json choice = Json::parse(shape->whole({told.choice}))["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"], "I look.");
  const Json& calls = choice["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0]["type"], "function");
  EXPECT_EQ(calls[0]["function"]["name"], "weather");
  EXPECT_EQ(Json::parse(calls[0]["function"]["arguments"].get<std::string>()),
            Json({{"city", "Zürich \"süd\""}, {"days", 3}}));
  EXPECT_EQ(calls[1]["function"]["arguments"], "{}");
  EXPECT_NE(calls[0]["id"], calls[1]["id"]);

  // The stream: id, type and name once, then arguments only; the same text in the end.
  std::vector<Json> streamed;
  std::string content, finish;
  int fragments = 0;
  for (const Json& f : frames(told.stream)) {
    const Json& c = f["choices"][0];
    if (c["delta"].contains("content")) content += c["delta"]["content"];
    if (c["finish_reason"].is_string()) finish = c["finish_reason"];
    for (const Json& call : c["delta"].value("tool_calls", Json::array())) {
      auto index = call["index"].get<size_t>();
      if (call.contains("id")) {
        EXPECT_EQ(index, streamed.size());
        EXPECT_EQ(call["function"]["arguments"], "");
        EXPECT_EQ(call["type"], "function");
        streamed.push_back({{"id", call["id"]}, {"name", call["function"]["name"]}, {"a", ""}});
      } else {
        ++fragments;
        EXPECT_FALSE(call.contains("type"));
        EXPECT_FALSE(call["function"].contains("name"));
        streamed.at(index)["a"].get_ref<std::string&>() += call["function"]["arguments"];
      }
    }
  }
  EXPECT_EQ(content, "I look.");
  EXPECT_EQ(finish, "tool_calls");
  EXPECT_GE(fragments, 4);
  ASSERT_EQ(streamed.size(), 2u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(streamed[i]["id"], calls[i]["id"]);
    EXPECT_EQ(streamed[i]["name"], calls[i]["function"]["name"]);
    EXPECT_EQ(streamed[i]["a"], calls[i]["function"]["arguments"]);
  }
}

TEST_F(Answers, CallsInAMessage) {
  auto shape = message_shape("m");
  AnswerOptions options;
  options.tools = true;
  options.in_reasoning = true;
  Told told = tell("hm</think>" + kCalls, options, *shape);
  Json whole = Json::parse(shape->whole({told.choice}));
  ASSERT_EQ(whole["content"].size(), 4u);
  EXPECT_EQ(whole["stop_reason"], "tool_use");
  EXPECT_EQ(whole["content"][2]["name"], "weather");
  EXPECT_EQ(whole["content"][2]["input"], Json({{"city", "Zürich \"süd\""}, {"days", 3}}));
  EXPECT_EQ(whole["content"][3]["input"], Json::object());
  // Blocks of the stream.
  std::vector<std::string> blocks;
  std::string json;
  for (const Json& e : frames(told.stream)) {
    if (e["type"] == "content_block_start") blocks.push_back(e["content_block"]["type"]);
    if (e["type"] == "content_block_delta" && e["index"] == 2)
      json += e["delta"].value("partial_json", "");
  }
  EXPECT_EQ(blocks, (std::vector<std::string>{"thinking", "text", "tool_use", "tool_use"}));
  EXPECT_EQ(Json::parse(json), whole["content"][2]["input"]);
}

TEST_F(Answers, OneCallWhereParallelCallsAreOff) {
  auto shape = chat_shape(chat_options(tokenizer_.value()));
  AnswerOptions options;
  options.tools = options.one_call = true;
  Told told = tell(kCalls, options, *shape);
  ASSERT_EQ(told.choice.calls.size(), 1u);
  EXPECT_EQ(told.choice.calls[0].name, "weather");
  EXPECT_LT(told.fed,
            static_cast<int>(tokenizer_.value().encode(kCalls, SpecialTokens::kParse).size()));
}

TEST_F(Answers, AForcedCallBeginsInThePrompt) {
  auto shape = chat_shape(chat_options(tokenizer_.value()));
  AnswerOptions options;
  options.tools = true;
  size_t at = kCalls.find(" name=\"weather\"");
  options.opening = kCalls.substr(7, at - 7);
  Told told = tell(kCalls.substr(at), options, *shape);
  ASSERT_EQ(told.choice.calls.size(), 2u);
  EXPECT_EQ(told.choice.calls[0].name, "weather");
  EXPECT_EQ(told.choice.content, "");
}

TEST_F(Answers, WithoutToolsAndThinkingMarksAreText) {
  auto shape = chat_shape(chat_options(tokenizer_.value()));
  AnswerOptions options;
  Told told = tell("a<｜DSML｜b", options, *shape);
  EXPECT_EQ(told.choice.content, "a<｜DSML｜b");
  // As a completion special tokens have no text, unless asked for.
  options.chat = false;
  EXPECT_EQ(tell("a<｜User｜>b", options, *shape).choice.content, "ab");
  options.skip_special = false;
  EXPECT_EQ(tell("a<｜User｜>b", options, *shape).choice.content, "a<｜User｜>b");
}

TEST_F(Answers, StopStringsLookAtTextNotAtMarks) {
  auto shape = chat_shape(chat_options(tokenizer_.value()));
  AnswerOptions options;
  options.in_reasoning = true;
  options.stop = {"think", "END"};
  Told told = tell("so</think>it is EN</think>ENDED", options, *shape);
  EXPECT_EQ(told.choice.reasoning, "so");
  EXPECT_EQ(told.choice.content, "it is EN</think>");
  EXPECT_EQ(told.choice.end->stop_string, "END");
}

TEST_F(Answers, CharactersArriveWhole) {
  std::string text = "naïve 字 🏔️ é 👨‍👩‍👧‍👦";
  auto shape = chat_shape(chat_options(tokenizer_.value()));
  Told told = tell(text, {}, *shape);
  EXPECT_EQ(told.choice.content, text);
  std::string joined;
  for (const Json& f : frames(told.stream)) joined += f["choices"][0]["delta"].value("content", "");
  EXPECT_EQ(joined, text);
  EXPECT_EQ(joined.find("\uFFFD"), std::string::npos);
}

}  // namespace
}  // namespace hadal
