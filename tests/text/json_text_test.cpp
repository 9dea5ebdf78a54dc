// JSON text as Python 3's json module reads and prints it; expected values are Python's output.
#include "text/json_text.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "rapidcheck/gtest.h"

namespace hadal {
namespace {

std::string again(const std::string& source) {
  auto v = parse_json(source, "the test");
  return v.ok() ? python_json(v.value()) : "error: " + v.error().message;
}

TEST(JsonText, LayoutAndOrder) {
  EXPECT_EQ(again("{\"b\":1,\"a\":[ ],\"c\":{ },\n\"d\":[1,[2,{\"x\":null}],true,false]}"),
            "{\"b\": 1, \"a\": [], \"c\": {}, \"d\": [1, [2, {\"x\": null}], true, false]}");
  EXPECT_EQ(again(" \"x\" "), "\"x\"");
}

TEST(JsonText, Numbers) {
  const char* kPairs[][2] = {
      {"1.0", "1.0"},
      {"1", "1"},
      {"-0", "0"},
      {"-0.0", "-0.0"},
      {"1e5", "100000.0"},
      {"1E-5", "1e-05"},
      {"0.0001", "0.0001"},
      {"0.00012", "0.00012"},
      {"1e15", "1000000000000000.0"},
      {"1e16", "1e+16"},
      {"9999999999999998.0", "9999999999999998.0"},
      {"123456789012345680.0", "1.2345678901234568e+17"},
      {"1e22", "1e+22"},
      {"1e100", "1e+100"},
      {"-1.5e-7", "-1.5e-07"},
      {"5e-324", "5e-324"},
      {"1.7976931348623157e308", "1.7976931348623157e+308"},
      {"2.50", "2.5"},
      {"0.333333333333333333333", "0.3333333333333333"},
      {"1e-400", "0.0"},
      {"9223372036854775808", "9223372036854775808"},
      {"18446744073709551616", "18446744073709551616"},
      {"-123456789012345678901234567890", "-123456789012345678901234567890"},
  };
  for (auto& [source, printed] : kPairs) EXPECT_EQ(again(source), printed) << source;
}

TEST(JsonText, Strings) {
  EXPECT_EQ(again(R"("\u00e9\ud83d\ude00 é \/ \" \\ \b\f\n\r\t \u0001 \u001f \u007f")"),
            "\"é😀 é / \\\" \\\\ \\b\\f\\n\\r\\t \\u0001 \\u001f \x7f\"");
}

TEST(JsonText, RepeatedKeysKeepTheFirstPlaceAndTheLastValue) {
  EXPECT_EQ(again(R"({"a":1,"b":2,"a":{"x":1,"x":2},"c":3,"b":null})"),
            R"({"a": {"x": 2}, "b": null, "c": 3})");
}

TEST(JsonText, Refused) {
  for (const char* source : {"", "{", "[1,]", "nul", "{\"a\":1}x", "\"\xff\"", "\"\\ud800\"", "NaN",
                             "'a'", "\"a\nb\"", "01", "1e400"}) {
    EXPECT_NE(again(source).find("error: the test is not valid JSON: "), std::string::npos)
        << source;
  }
  EXPECT_EQ(again(std::string(500, '[') + std::string(500, ']')).size(), 1000u);
  EXPECT_EQ(again(std::string(100000, '[')),
            "error: the test is not valid JSON: it is nested deeper than 500 levels");
}

TEST(JsonText, Find) {
  auto v = parse_json(R"({"a":null,"b":"x"})", "the test");
  ASSERT_TRUE(v.ok());
  EXPECT_EQ(v.value().find("a"), nullptr);
  EXPECT_EQ(v.value().find("c"), nullptr);
  EXPECT_EQ(v.value().find("b")->text, "x");
  EXPECT_EQ(v.value().find("b")->find("a"), nullptr);
}

// The digits are the shortest that read back; strtod is the other program here.
RC_GTEST_PROP(JsonText, FloatsReadBack, (double value)) {
  RC_ASSERT(std::strtod(python_float(value).c_str(), nullptr) == value);
}

}  // namespace
}  // namespace hadal
