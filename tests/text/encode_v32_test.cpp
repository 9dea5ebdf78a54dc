// V3.2 against the rules of spec V3.2 8.4; the larger cases are in encode_golden_test.
#include "text/chat_cases.h"

namespace hadal {
namespace {

constexpr auto kV32 = ChatFormat::kV32;

TEST(EncodeV32, ExampleOfTheSpec) {
  constexpr const char* kHi = R"([{"role": "system", "content": "S"},
                                  {"role": "user", "content": "hi"}])";
  EXPECT_EQ(rendered(kV32, true, kHi),
            "<｜begin▁of▁sentence｜>S<｜User｜>hi<｜Assistant｜><think>");
  EXPECT_EQ(rendered(kV32, false, kHi),
            "<｜begin▁of▁sentence｜>S<｜User｜>hi<｜Assistant｜></think>");
}

TEST(EncodeV32, ToolLoopInThinkingMode) {
  constexpr const char* kLoop = R"([{"role": "user", "content": "q"},
      {"role": "assistant", "reasoning_content": "r", "content": "c", "tool_calls": [
        {"id": "1", "function": {"name": "f", "arguments": "{}"}},
        {"id": "2", "function": {"name": "g", "arguments": "{\"a\":\"x\\ny\",\"b\":[1,2]}"}}]},
      {"role": "tool", "tool_call_id": "2", "content": "R1"},
      {"role": "tool", "tool_call_id": "1", "content": "R2"}])";
  std::string calls =
      "\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n\n</｜DSML｜invoke>\n"
      "<｜DSML｜invoke name=\"g\">\n<｜DSML｜parameter name=\"a\" string=\"true\">x\ny"
      "</｜DSML｜parameter>\n<｜DSML｜parameter name=\"b\" string=\"false\">[1, "
      "2]</｜DSML｜parameter>\n"
      "</｜DSML｜invoke>\n</｜DSML｜function_calls><｜end▁of▁sentence｜>\n\n<function_results>\n"
      "<result>R1</result>\n<result>R2</result>\n</function_results>\n\n";
  EXPECT_EQ(
      rendered(kV32, true, kLoop),
      "<｜begin▁of▁sentence｜><｜User｜>q<｜Assistant｜><think>r</think>c" + calls + "<think>");
  EXPECT_EQ(rendered(kV32, false, kLoop),
            "<｜begin▁of▁sentence｜><｜User｜>q<｜Assistant｜></think>c" + calls + "</think>");
}

TEST(EncodeV32, DeveloperOfThePastVanishesInThinkingModeOnly) {
  constexpr const char* kTurns = R"([{"role": "developer", "content": "d"},
      {"role": "assistant", "content": "a", "reasoning_content": "r"},
      {"role": "user", "content": "q"}])";
  EXPECT_EQ(rendered(kV32, true, kTurns),
            "<｜begin▁of▁sentence｜>a<｜end▁of▁sentence｜><｜User｜>q<｜Assistant｜><think>");
  EXPECT_EQ(
      rendered(kV32, false, kTurns),
      "<｜begin▁of▁sentence｜><｜User｜>\n\n# The user's message is: d<｜Assistant｜></think>a"
      "<｜end▁of▁sentence｜><｜User｜>q<｜Assistant｜></think>");
}

TEST(EncodeV32, RequestFieldsJoinTheSystemMessage) {
  EXPECT_EQ(rendered(R"({"format": "v3.2", "tools": [{"function": {"name": "f"}}],
      "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "q"}]})"),
            "<｜begin▁of▁sentence｜>S\n\n[tools: <｜DSML｜x> <think>r</think>]\n{\"name\": \"f\"}\n"
            "[end of tools]\n<｜User｜>q<｜Assistant｜></think>");
  EXPECT_EQ(rendered(R"({"format": "v3.2", "response_format": {"type": "json_schema",
      "json_schema": {"name": "n", "schema": {"a":1}}},
      "messages": [{"role": "user", "content": "q"}]})"),
            "<｜begin▁of▁sentence｜>\n\n[format]\n{\"a\": 1}<｜User｜>q<｜Assistant｜></think>");
}

TEST(EncodeV32, WithoutGenerationPrompt) {
  EXPECT_EQ(rendered(R"({"format": "v3.2", "add_generation_prompt": false, "messages": [
      {"role": "user", "content": "q1"}, {"role": "user", "content": "q2"}]})"),
            "<｜begin▁of▁sentence｜><｜User｜>q1<｜Assistant｜></think><｜User｜>q2");
}

TEST(EncodeV32, Refused) {
  EXPECT_EQ(rendered(kV32, true, R"([{"role": "user", "content": "q"},
      {"role": "assistant", "content": "a"}])"),
            "error: message 2 (assistant): in thinking mode it needs reasoning_content or "
            "tool_calls.");
  EXPECT_EQ(rendered(kV32, false, R"([{"role": "developer", "content": ""}])"),
            "error: message 1 (developer): its content must not be empty.");
  EXPECT_EQ(rendered(kV32, false, R"([{"role": "user", "content": "q"},
      {"role": "tool", "content": "r"}])"),
            "error: message 2 (tool): it must follow an assistant message with tool_calls, or "
            "another tool message after one.");
  EXPECT_EQ(rendered(kV32, false, R"([{"role": "tool", "content": "r"}])"),
            "error: message 1 (tool): it must follow an assistant message with tool_calls, or "
            "another tool message after one.");
  EXPECT_EQ(rendered(kV32, false, R"([{"role": "assistant", "content": "", "tool_calls": [
      {"function": {"name": "f", "arguments": "{}"}}]},
      {"role": "tool", "content": "r"}, {"role": "tool", "content": "r"}])"),
            "error: message 3 (tool): the assistant message before has only 1 tool_calls.");
  EXPECT_EQ(rendered(kV32, false, R"([{"role": "assistant", "content": "", "tool_calls": [
      {"function": {"name": "f", "arguments": "[1]"}}]}])"),
            "error: the arguments of the call of \"f\" must be a JSON object, not a list.");
  std::string broken = rendered(kV32, false, R"([{"role": "assistant", "content": "",
      "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}])");
  EXPECT_EQ(broken.find("error: the arguments of the call of \"f\" is not valid JSON: "), 0u)
      << broken;
  EXPECT_EQ(rendered(R"({"format": "v3.2", "reasoning_effort": "max",
      "messages": [{"role": "user", "content": "q"}]})"),
            "error: V3.2 has no reasoning effort \"max\": leave reasoning_effort out.");
  EXPECT_EQ(rendered(kV32, false, R"([{"role": "user", "content": "q",
      "tools": [{"function": {"name": "f"}}]}])"),
            "error: message 1 (user): tools and response_format belong to a system or developer "
            "message, or to the request.");
}

}  // namespace
}  // namespace hadal
