// V4 against the rules of spec V4 8.2; the larger cases are in encode_golden_test.
#include "text/chat_cases.h"

namespace hadal {
namespace {

constexpr auto kPreview = ChatFormat::kV4Preview, k0731 = ChatFormat::kV4_0731;

TEST(EncodeV4, ExamplesOfTheSpec) {
  constexpr const char* kHi = R"([{"role": "system", "content": "SYS"},
                                  {"role": "user", "content": "Hi"}])";
  constexpr const char* kNext = R"([{"role": "system", "content": "SYS"},
      {"role": "user", "content": "Hi"},
      {"role": "assistant", "content": "Hello", "reasoning_content": "Greet."},
      {"role": "user", "content": "Next"}])";
  for (ChatFormat format : {kPreview, k0731}) {
    EXPECT_EQ(rendered(format, false, kHi),
              "<｜begin▁of▁sentence｜>SYS<｜User｜>Hi<｜Assistant｜></think>");
    EXPECT_EQ(rendered(format, true, kHi),
              "<｜begin▁of▁sentence｜>SYS<｜User｜>Hi<｜Assistant｜><think>");
    EXPECT_EQ(
        rendered(format, true, kNext),
        "<｜begin▁of▁sentence｜>SYS<｜User｜>Hi<｜Assistant｜></think>Hello<｜end▁of▁sentence｜>"
        "<｜User｜>Next<｜Assistant｜><think>");
  }
}

TEST(EncodeV4, ReasoningEffort) {
  auto effort = [](const char* format, const char* level, const char* thinking) {
    std::string body = std::string("{\"format\": \"") + format + "\", \"reasoning_effort\": \"" +
                       level + "\", \"thinking\": " + thinking +
                       ", \"messages\": [{\"role\": \"user\", \"content\": \"q\"}]}";
    std::string text = rendered(body);
    std::string bos = "<｜begin▁of▁sentence｜>", rest = "<｜User｜>q<｜Assistant｜>";
    if (text.find("error") == 0) return text;
    return text.substr(bos.size(), text.find(rest) - bos.size());
  };
  EXPECT_EQ(effort("v4-preview", "", "true"), "");
  EXPECT_EQ(effort("v4-preview", "high", "true"), "");
  EXPECT_EQ(effort("v4-preview", "max", "true"), "[effort A]\n\n");
  EXPECT_EQ(effort("v4-preview", "low", "true"),
            "error: V4 preview has no reasoning effort \"low\": use high or max, or leave "
            "reasoning_effort out.");
  EXPECT_EQ(effort("v4-0731", "", "true"), "");
  EXPECT_EQ(effort("v4-0731", "low", "true"), "");
  EXPECT_EQ(effort("v4-0731", "high", "true"), "[effort A]\n\n");
  EXPECT_EQ(effort("v4-0731", "max", "true"), "[effort B]\n\n");
  EXPECT_EQ(effort("v4-0731", "max", "false"), "");
  EXPECT_EQ(effort("v4-0731", "medium", "true"),
            "error: V4 (0731) has no reasoning effort \"medium\": use low, high or max, or leave "
            "reasoning_effort out.");
}

TEST(EncodeV4, ResultsAreOrderedByTheirCallsAndTextKeepsItsPlace) {
  EXPECT_EQ(
      rendered(kPreview, false, R"([
      {"role": "assistant", "content": "", "tool_calls": [
        {"id": "a", "function": {"name": "f", "arguments": "{}"}},
        {"id": "b", "function": {"name": "f", "arguments": "{}"}}]},
      {"role": "tool", "tool_call_id": "b", "content": "B"},
      {"role": "user", "content": "between"},
      {"role": "tool", "tool_call_id": "a", "content": "A"},
      {"role": "tool", "tool_call_id": "?", "content": "U"}])"),
      "<｜begin▁of▁sentence｜>\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n\n"
      "</｜DSML｜invoke>\n<｜DSML｜invoke name=\"f\">\n\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
      "<｜end▁of▁sentence｜><｜User｜><tool_result>A</tool_result>\n\nbetween\n\n"
      "<tool_result>U</tool_result>\n\n<tool_result>B</tool_result><｜Assistant｜></think>");
}

TEST(EncodeV4, UsersMergeUnlessTheFirstHasATask) {
  EXPECT_EQ(
      rendered(kPreview, false, R"([{"role": "user", "content": "a"},
      {"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "image_url"}]}])"),
      "<｜begin▁of▁sentence｜><｜User｜>a\n\nb\n\n[Unsupported image_url]<｜Assistant｜></think>");
  EXPECT_EQ(rendered(kPreview, false, R"([{"role": "user", "content": "a", "task": "query"},
      {"role": "user", "content": "b"}])"),
            "<｜begin▁of▁sentence｜><｜User｜>a<｜User｜>b<｜Assistant｜></think>");
}

TEST(EncodeV4, ToolsKeepAllReasoning) {
  constexpr const char* kTurns = R"([{"role": "user", "content": "q1"},
      {"role": "assistant", "content": "a1", "reasoning": "r1"},
      {"role": "user", "content": "q2"}])";
  std::string body = std::string("{\"thinking\": true, \"messages\": ") + kTurns;
  EXPECT_EQ(rendered(body + "}"),
            "<｜begin▁of▁sentence｜><｜User｜>q1<｜Assistant｜></"
            "think>a1<｜end▁of▁sentence｜><｜User｜>q2"
            "<｜Assistant｜><think>");
  std::string kept =
      "<｜User｜>q1<｜Assistant｜><think>r1</"
      "think>a1<｜end▁of▁sentence｜><｜User｜>q2<｜Assistant｜>"
      "<think>";
  EXPECT_EQ(rendered(body + ", \"drop_thinking\": false}"), "<｜begin▁of▁sentence｜>" + kept);
  EXPECT_EQ(rendered(body + ", \"tools\": [{\"function\": {\"name\": \"f\"}}]}"),
            "<｜begin▁of▁sentence｜>\n\n[tools: <｜DSML｜x> <think>r</think>]\n{\"name\": \"f\"}\n"
            "[end of tools]\n" +
                kept);
  EXPECT_EQ(rendered(body + ", \"tools\": []}"), rendered(body + "}"));
}

TEST(EncodeV4, ArgumentsThatAreNoObject) {
  for (const char* arguments : {"[1, 2]", "oops", ""}) {
    std::string text =
        rendered(kPreview, false,
                 std::string(R"([{"role": "assistant", "content": null, "tool_calls": [
            {"function": {"name": "f", "arguments": ")") +
                     arguments + "\"}}]}]");
    EXPECT_NE(text.find("<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"arguments\" "
                        "string=\"true\">" +
                        std::string(arguments) + "</｜DSML｜parameter>\n</｜DSML｜invoke>"),
              std::string::npos)
        << text;
  }
}

TEST(EncodeV4, Tasks) {
  auto task = [](const char* name, bool thinking) {
    return rendered(
        kPreview, thinking,
        std::string("[{\"role\": \"user\", \"content\": \"q\", \"task\": \"") + name + "\"}]");
  };
  std::string q = "<｜begin▁of▁sentence｜><｜User｜>q";
  EXPECT_EQ(task("action", false), q + "<｜Assistant｜></think><｜action｜>");
  EXPECT_EQ(task("action", true), q + "<｜Assistant｜><think><｜action｜>");
  for (const char* name : {"query", "authority", "domain", "title", "read_url"}) {
    EXPECT_EQ(task(name, true), q + "<｜" + name + "｜>");
  }
  EXPECT_EQ(task("search", true),
            "error: unknown task \"search\": use action, query, authority, domain, title or "
            "read_url.");
}

TEST(EncodeV4, OpensReasoning) {
  auto opens = [](const char* messages) {
    ChatOptions options;
    options.thinking = true;
    return render(messages, options).value().opens_reasoning;
  };
  EXPECT_TRUE(opens(R"([{"role": "user", "content": "q"}])"));
  EXPECT_FALSE(opens(R"([{"role": "user", "content": "q", "task": "action"}])"));
  EXPECT_FALSE(
      opens(R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}])"));
  // The header comes before the reminder.
  EXPECT_TRUE(opens(R"([{"role": "user", "content": "q"},
                        {"role": "latest_reminder", "content": "d"}])"));
}

TEST(EncodeV4, WithoutGenerationPrompt) {
  EXPECT_EQ(rendered(R"({"add_generation_prompt": false, "messages": [
      {"role": "user", "content": "q"}]})"),
            "<｜begin▁of▁sentence｜><｜User｜>q");
}

TEST(EncodeV4, Refused) {
  EXPECT_EQ(rendered(kPreview, false, R"([{"role": "developer", "content": null}])"),
            "error: the content of a developer message must not be empty.");
  EXPECT_EQ(rendered(kPreview, false, "[]"),
            "error: the conversation has no messages: give at least one.");
  EXPECT_EQ(rendered(kPreview, false, R"([{"role": "user", "content": "q", "tool_calls": [
      {"function": {"name": "f", "arguments": "{}"}}]}])"),
            "error: message 1 (user): only an assistant message can have tool_calls.");
}

}  // namespace
}  // namespace hadal
