// V3, R1 and V3.1 against the forms that spec V3.2 8.2 and 8.3 write out.
#include "text/chat_cases.h"

namespace hadal {
namespace {

constexpr const char* kTurns = R"([
  {"role": "system", "content": "S"}, {"role": "user", "content": "q1"},
  {"role": "assistant", "content": "a1"}, {"role": "user", "content": "q2"}])";

TEST(EncodeV3, Turns) {
  EXPECT_EQ(rendered(ChatFormat::kV3, false, kTurns),
            "<｜begin▁of▁sentence｜>S<｜User｜>q1<｜Assistant｜>a1<｜end▁of▁sentence｜>"
            "<｜User｜>q2<｜Assistant｜>");
}

TEST(EncodeV3, SystemMessagesStandInFrontAndUsersFollowEachOther) {
  EXPECT_EQ(
      rendered(ChatFormat::kV3, false, R"([
      {"role": "system", "content": "S1"}, {"role": "user", "content": "q1"},
      {"role": "developer", "content": "S2"}, {"role": "user", "content": "q2"},
      {"role": "system", "content": ""}])"),
      "<｜begin▁of▁sentence｜>S1\n\nS2\n\n<｜User｜>q1<｜Assistant｜><｜User｜>q2<｜Assistant｜>");
}

TEST(EncodeV3, WithoutGenerationPrompt) {
  EXPECT_EQ(rendered(R"({"format": "v3", "add_generation_prompt": false,
      "messages": [{"role": "user", "content": "q"}]})"),
            "<｜begin▁of▁sentence｜><｜User｜>q<｜Assistant｜>");
  EXPECT_EQ(rendered(R"({"format": "r1", "add_generation_prompt": false,
      "messages": [{"role": "user", "content": "q"}]})"),
            "<｜begin▁of▁sentence｜><｜User｜>q<｜Assistant｜>");
}

TEST(EncodeV3, ThinkingIsRefused) {
  EXPECT_EQ(rendered(ChatFormat::kV3, true, kTurns),
            "error: V3 has no thinking mode: turn thinking off.");
}

TEST(EncodeV3, CallsAndResults) {
  constexpr const char* kCalls = R"({"format": "v3", "messages": [
      {"role": "user", "content": "q"},
      {"role": "assistant", "content": "t", "tool_calls": [
        {"function": {"name": "f", "arguments": "{\"a\":1}"}},
        {"function": {"name": "g", "arguments": {"b": 1.0}}}]},
      {"role": "tool", "content": "R1"}, {"role": "tool", "content": "R2"}]})";
  std::string calls =
      "<｜begin▁of▁sentence｜><｜User｜>q<｜Assistant｜>t<｜tool▁calls▁begin｜><"
      "｜tool▁call▁begin｜>"
      "function<｜tool▁sep｜>f\n```json\n{\"a\":1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>"
      "function<｜tool▁sep｜>g\n```json\n{\"b\": 1.0}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
      "<｜end▁of▁sentence｜><｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>R1<｜tool▁output▁end｜>"
      "\n"
      "<｜tool▁output▁begin｜>R2<｜tool▁output▁end｜><｜tool▁outputs▁end｜>";
  EXPECT_EQ(rendered(kCalls), calls);
  std::string as_r1 = kCalls;
  as_r1.replace(as_r1.find("v3"), 2, "r1");
  EXPECT_EQ(rendered(as_r1), calls);  // the answer follows directly, without <think>
}

TEST(EncodeV3, UserAfterResults) {
  EXPECT_EQ(
      rendered(ChatFormat::kV3, false, R"([
      {"role": "assistant", "content": null, "tool_calls": [
        {"function": {"name": "f", "arguments": "{}"}}]},
      {"role": "tool", "content": "R"}, {"role": "user", "content": "q"}])"),
      "<｜begin▁of▁sentence｜><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n"
      "```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>"
      "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>R<｜tool▁output▁end｜><｜tool▁outputs▁end｜>"
      "<｜User｜>q<｜Assistant｜>");
}

TEST(EncodeR1, OpensThinkingAndForgetsIt) {
  EXPECT_EQ(rendered(ChatFormat::kR1, false, R"([
      {"role": "user", "content": "q1"},
      {"role": "assistant", "content": "<think>\nx</think>y</think>\n\na1"},
      {"role": "user", "content": "q2"}])"),
            "<｜begin▁of▁sentence｜><｜User｜>q1<｜Assistant｜>\n\na1<｜end▁of▁sentence｜>"
            "<｜User｜>q2<｜Assistant｜><think>\n");
  EXPECT_EQ(rendered(ChatFormat::kR1, true, R"([{"role": "user", "content": "q"}])"),
            "<｜begin▁of▁sentence｜><｜User｜>q<｜Assistant｜><think>\n");
  EXPECT_TRUE(render(R"({"format": "r1", "messages": [{"role": "user", "content": "q"}]})")
                  .value()
                  .opens_reasoning);
}

TEST(EncodeV3, ContinuedAnswer) {
  EXPECT_EQ(rendered(ChatFormat::kR1, false, R"([{"role": "user", "content": "q"},
      {"role": "assistant", "content": "One,", "prefix": true}])"),
            "<｜begin▁of▁sentence｜><｜User｜>q<｜Assistant｜>One,");
  EXPECT_EQ(rendered(ChatFormat::kV31, false, R"([{"role": "user", "content": "q"},
      {"role": "assistant", "content": "One,", "prefix": true}])"),
            "<｜begin▁of▁sentence｜><｜User｜>q<｜Assistant｜></think>One,");
}

TEST(EncodeV31, Modes) {
  std::string history =
      "<｜begin▁of▁sentence｜>S<｜User｜>q1<｜Assistant｜></"
      "think>a1<｜end▁of▁sentence｜><｜User｜>q2";
  EXPECT_EQ(rendered(ChatFormat::kV31, false, kTurns), history + "<｜Assistant｜></think>");
  EXPECT_EQ(rendered(ChatFormat::kV31, true, kTurns), history + "<｜Assistant｜><think>");
}

TEST(EncodeV31, CallsResultsAndDroppedReasoning) {
  EXPECT_EQ(rendered(ChatFormat::kV31, true, R"([
      {"role": "user", "content": "q"},
      {"role": "assistant", "content": "x</think>t", "reasoning_content": "y", "tool_calls": [
        {"function": {"name": "f", "arguments": "{\"a\":1}"}},
        {"function": {"name": "g", "arguments": "{}"}}]},
      {"role": "tool", "content": "R1"}, {"role": "tool", "content": "R2"}])"),
            "<｜begin▁of▁sentence｜><｜User｜>q<｜Assistant｜></think>t<｜tool▁calls▁begin｜>"
            "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\":1}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g"
            "<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>"
            "<｜tool▁output▁begin｜>R1<｜tool▁output▁end｜><｜tool▁output▁begin｜>R2<"
            "｜tool▁output▁end｜>");
}

TEST(EncodeV31, ToolsFollowTheSystemText) {
  EXPECT_EQ(rendered(R"({"format": "v3.1", "tools": [
      {"function": {"name": "f", "description": "D", "parameters": {"type":"object","x":1.0}}},
      {"function": {"name": "g"}}],
      "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "q"}]})"),
            "<｜begin▁of▁sentence｜>S\n\n[tools: <｜DSML｜x> <think>r</think>]\n"
            "\n### f\nDescription: D\n\nParameters: {\"type\": \"object\", \"x\": 1.0}\n"
            "\n### g\nDescription: \n\nParameters: {}\n"
            "\n[end of tools]\n<｜User｜>q<｜Assistant｜></think>");
  EXPECT_EQ(rendered(R"({"format": "v3.1", "tools": [{"function": {"description": "D"}}],
      "messages": [{"role": "user", "content": "q"}]})"),
            "error: a tool needs a \"name\" that is a string: {\"description\": \"D\"}.");
}

TEST(EncodeV3, Refused) {
  EXPECT_EQ(rendered(ChatFormat::kV3, false, R"([{"role": "user", "content": "q"},
      {"role": "tool", "content": "R"}])"),
            "error: message 2 (tool): it must follow an assistant message with tool_calls, or "
            "another tool message after one.");
  EXPECT_EQ(rendered(R"({"format": "r1", "tools": [{"function": {"name": "f"}}],
      "messages": [{"role": "user", "content": "q"}]})"),
            "error: R1 has no text that announces tools: describe them in the system message "
            "instead of \"tools\".");
  EXPECT_EQ(rendered(R"({"format": "v3.1", "response_format": {"type": "json_object"},
      "messages": [{"role": "user", "content": "q"}]})"),
            "error: V3.1 has no text for a response format: describe it in the system message "
            "instead of \"response_format\".");
  EXPECT_EQ(rendered(R"({"format": "v3.1", "reasoning_effort": "high",
      "messages": [{"role": "user", "content": "q"}]})"),
            "error: V3.1 has no reasoning effort \"high\": leave reasoning_effort out.");
  EXPECT_EQ(
      rendered(ChatFormat::kV3, false, R"([{"role": "user", "content": [{"type": "image_url"}]}])"),
      "error: message 1 (user): content of type \"image_url\" is not supported; send text "
      "only.");
  EXPECT_EQ(rendered(ChatFormat::kV31, false, R"([{"role": "latest_reminder", "content": "x"}])"),
            "error: message 1 (latest_reminder): V3.1 has no role latest_reminder; put the text "
            "into a user message.");
  EXPECT_EQ(
      rendered(ChatFormat::kV31, false, R"([{"role": "user", "content": "x", "task": "title"}])"),
      "error: message 1 (user): V3.1 has no tasks; leave \"task\" out.");
}

}  // namespace
}  // namespace hadal
