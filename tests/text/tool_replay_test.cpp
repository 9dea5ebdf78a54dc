// Calls that come back are known by ids, names and values, whatever their JSON looks like.
#include "text/tool_replay.h"

#include <gtest/gtest.h>

namespace hadal {
namespace {

Conversation with_calls(std::vector<ToolCall> calls) {
  Conversation c;
  Message m;
  m.role = Role::kAssistant;
  m.tool_calls = std::move(calls);
  c.messages.push_back(std::move(m));
  return c;
}

std::string restored(ToolReplay& replay, std::vector<ToolCall> calls) {
  Conversation c = with_calls(std::move(calls));
  replay.restore(c);
  return c.messages[0].tool_calls_text;
}

TEST(ToolReplay, KnowsCallsAgain) {
  ToolReplay replay(10000);
  replay.remember({{"a", "f", R"({"x": 1, "y": [1, {"z": null}]})"}, {"b", "g", "{}"}}, "TEXT");
  EXPECT_EQ(restored(replay, {{"a", "f", R"({"y":[1,{"z":null}],"x":1})"}, {"b", "g", "{ }"}}),
            "TEXT");
  EXPECT_EQ(restored(replay, {{"a", "f", R"({"x": 1, "y": [1, {"z": null}]})"}}), "");
  EXPECT_EQ(restored(replay, {{"a", "f", R"({"x": 2, "y": [1, {"z": null}]})"}, {"b", "g", "{}"}}),
            "");
  EXPECT_EQ(restored(replay, {{"a", "h", R"({"x": 1, "y": [1, {"z": null}]})"}, {"b", "g", "{}"}}),
            "");
  EXPECT_EQ(restored(replay, {{"b", "g", "{}"}}), "");
  EXPECT_EQ(restored(replay, {{"", "f", "{}"}}), "");
}

TEST(ToolReplay, ComparesValues) {
  EXPECT_TRUE(same_json("not json", "not json"));
  EXPECT_FALSE(same_json("not json", "{}"));
  EXPECT_TRUE(same_json("[1, \"a\"]", "[1,\"a\"]"));
  EXPECT_FALSE(same_json("[1, 2]", "[2, 1]"));
  EXPECT_FALSE(same_json("1", "\"1\""));
  EXPECT_FALSE(same_json(R"({"a": 1})", R"({"a": 1, "b": 2})"));
  EXPECT_FALSE(same_json(R"({"a": 1, "c": 2})", R"({"a": 1, "b": 2})"));
}

TEST(ToolReplay, ForgetsTheLongestUnused) {
  ToolReplay replay(3 * (2 * 1000 + 200));
  auto id = [](int i) { return "id" + std::to_string(i); };
  for (int i = 0; i < 3; ++i) replay.remember({{id(i), "f", "{}"}}, std::string(1000, 'a' + i));
  EXPECT_EQ(restored(replay, {{id(0), "f", "{}"}}), std::string(1000, 'a'));
  replay.remember({{id(3), "f", "{}"}}, std::string(1000, 'd'));
  EXPECT_EQ(restored(replay, {{id(1), "f", "{}"}}), "");
  for (int i : {0, 2, 3}) EXPECT_NE(restored(replay, {{id(i), "f", "{}"}}), "") << i;
  replay.remember({{"big", "f", "{}"}}, std::string(100000, 'x'));
  for (int i : {0, 2, 3}) EXPECT_EQ(restored(replay, {{id(i), "f", "{}"}}), "") << i;
  EXPECT_EQ(restored(replay, {{"big", "f", "{}"}}), "");
}

}  // namespace
}  // namespace hadal
