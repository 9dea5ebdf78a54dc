// Every recorded text, cut at every byte and into pieces of every small size, must give the events
// that its file tells; and what the encoders render must come back as the calls that went in.
#include "text/stream_parser.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "text/chat_cases.h"

namespace hadal {
namespace {

using Kind = StreamEvent::Kind;
using Events = std::vector<StreamEvent>;
using nlohmann::ordered_json;

struct Case {
  std::string name, text;
  ChatFormat format;
  bool in_reasoning, tools;
  Events events;
};

Kind kind_by_name(const std::string& name) {
  for (auto [known, kind] : {std::pair{"reasoning", Kind::kReasoning},
                             {"content", Kind::kContent},
                             {"begin", Kind::kCallBegin},
                             {"arguments", Kind::kCallArguments},
                             {"end", Kind::kCallEnd}})
    if (name == known) return kind;
  ADD_FAILURE() << name;
  return Kind::kContent;
}

std::vector<Case> recorded() {
  std::vector<Case> cases;
  for (const auto& file :
       std::filesystem::directory_iterator(std::string(HADAL_TEST_DATA) + "/../text/data/stream")) {
    std::ifstream in(file.path());
    auto j = nlohmann::json::parse(in);
    Case c{file.path().stem(), j["text"],  chat_format_by_name(j["format"]).value(),
           j["in_reasoning"],  j["tools"], {}};
    for (const auto& e : j["events"]) c.events.push_back({kind_by_name(e[0]), e[1]});
    cases.push_back(std::move(c));
  }
  return cases;
}

// Neighbouring pieces of one run of text as one event.
Events joined(const Events& events) {
  Events out;
  for (const StreamEvent& e : events) {
    bool text = e.kind != Kind::kCallBegin && e.kind != Kind::kCallEnd;
    EXPECT_EQ(text && e.text.empty(), false);
    if (text && !out.empty() && out.back().kind == e.kind) {
      out.back().text += e.text;
    } else {
      out.push_back(e);
    }
  }
  return out;
}

Events parse(const Case& c, const std::vector<std::string>& pieces) {
  StreamParser parser(c.format, c.in_reasoning, c.tools);
  Events events;
  for (const auto& p : pieces) parser.push(p, events);
  parser.finish(events);
  return joined(events);
}

std::string shown(const Events& events) {
  std::string s;
  for (const auto& e : events) s += std::to_string(static_cast<int>(e.kind)) + "[" + e.text + "] ";
  return s;
}

TEST(StreamParser, EveryRecordedTextWholeAndCutAtEveryByte) {
  auto cases = recorded();
  ASSERT_GT(cases.size(), 35u);
  for (const Case& c : cases) {
    ASSERT_EQ(shown(parse(c, {c.text})), shown(c.events)) << c.name;
    for (size_t at = 1; at < c.text.size(); ++at) {
      ASSERT_EQ(shown(parse(c, {c.text.substr(0, at), c.text.substr(at)})), shown(c.events))
          << c.name << " cut at " << at;
    }
    for (size_t width : {1, 2, 3, 7, 17}) {
      std::vector<std::string> pieces;
      for (size_t at = 0; at < c.text.size(); at += width)
        pieces.push_back(c.text.substr(at, width));
      ASSERT_EQ(shown(parse(c, pieces)), shown(c.events)) << c.name << " width " << width;
    }
  }
}

TEST(StreamParser, WholeArgumentsAreJson) {
  for (const Case& c : recorded()) {
    std::string arguments;
    bool cut = c.name.find("cut-in") != std::string::npos || c.name == "v31-cut";
    for (const auto& e : c.events) {
      if (e.kind == Kind::kCallBegin) arguments.clear();
      if (e.kind == Kind::kCallArguments) arguments += e.text;
      if (e.kind != Kind::kCallEnd || cut) continue;
      EXPECT_TRUE(nlohmann::json::parse(arguments, nullptr, false).is_object()) << c.name;
    }
  }
}

TEST(StreamParser, LongStringsComeInPieces) {
  StreamParser parser(ChatFormat::kV4Preview, false, true);
  Events events;
  parser.push("\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"write\">\n", events);
  parser.push("<｜DSML｜parameter name=\"text\" string=\"true\">", events);
  ASSERT_EQ(events.size(), 2u);  // begin, and the arguments' head
  for (int i = 0; i < 200; ++i) parser.push("0123456789", events);
  EXPECT_EQ(events.size(), 202u);
}

TEST(StreamParser, SaysWhatStateItIsIn) {
  StreamParser parser(ChatFormat::kV4Preview, true, true);
  Events events;
  EXPECT_TRUE(parser.in_reasoning());
  parser.push("hm</thi", events);
  EXPECT_TRUE(parser.in_reasoning());
  parser.push("nk>", events);
  EXPECT_FALSE(parser.in_reasoning());
  EXPECT_EQ(parser.calls(), 0);
}

TEST(StreamParser, KeepsTheBytesOfTheCalls) {
  for (const Case& c : recorded()) {
    if (c.name != "v4-parallel" && c.name != "v31-parallel" && c.name != "v32-call") continue;
    StreamParser parser(c.format, c.in_reasoning, c.tools);
    Events events;
    for (char byte : c.text) parser.push({&byte, 1}, events);
    parser.finish(events);
    size_t begin = c.name == "v4-parallel" ? 2 : 0;  // "ok"
    EXPECT_EQ(parser.calls_text(), c.text.substr(begin)) << c.name;
  }
}

// An assistant message as the encoder writes it.
std::string written(const ordered_json& calls, const std::string& content,
                    const std::string& reasoning, ChatFormat format, bool thinking) {
  ordered_json user = {{"role", "user"}, {"content", "u"}};
  ordered_json tool = {{"type", "function"}, {"function", {{"name", "f"}}}};
  ordered_json body = {{"messages", {user}}, {"tools", {tool}}};
  ChatOptions options;
  options.format = format;
  options.thinking = thinking;
  std::string prompt = rendered(body.dump(), options);
  body["messages"].push_back({{"role", "assistant"},
                              {"content", content},
                              {"reasoning_content", reasoning},
                              {"tool_calls", calls}});
  std::string whole = rendered(body.dump(), options);
  EXPECT_TRUE(whole.starts_with(prompt)) << whole;
  std::string eos = "<｜end▁of▁sentence｜>";
  EXPECT_TRUE(whole.ends_with(eos)) << whole;
  return whole.substr(prompt.size(), whole.size() - prompt.size() - eos.size());
}

std::string any_text() {
  static const std::vector<std::string> kPieces = {
      "a",  " ",  "\n",      "<",      ">", "\"", "\\",     "ü",      "字",      "🏔",
      "</", "｜", "<｜DSML", "DSML｜", "{", "}",  "</thin", "invoke", "name=\"", "\t"};
  std::string s;
  for (int n = *rc::gen::inRange(0, 8); n > 0; --n) s += *rc::gen::elementOf(kPieces);
  return s;
}

RC_GTEST_PROP(StreamParser, WhatTheEncodersWriteComesBack, ()) {
  auto format = *rc::gen::element(ChatFormat::kV31, ChatFormat::kV32, ChatFormat::kV4Preview,
                                  ChatFormat::kV4_0731);
  bool thinking = format != ChatFormat::kV31 && *rc::gen::arbitrary<bool>();
  ordered_json calls = ordered_json::array();
  std::vector<ordered_json> arguments;
  for (int n = *rc::gen::inRange(1, 4); n > 0; --n) {
    ordered_json object = ordered_json::object();
    for (int k = *rc::gen::inRange(0, 4); k > 0; --k) {
      std::string key = "k" + std::to_string(k);
      switch (*rc::gen::inRange(0, 3)) {
        case 0:
          object[key] = any_text();
          break;
        case 1:
          object[key] = *rc::gen::inRange(-1000, 1000);
          break;
        default:
          object[key] = {nullptr, true, any_text(), {{"x", any_text()}}};
      }
    }
    arguments.push_back(object);
    calls.push_back(
        {{"id", "c" + std::to_string(n)},
         {"type", "function"},
         {"function", {{"name", "f" + std::to_string(n)}, {"arguments", object.dump()}}}});
  }
  // The encoder drops a blank line before the block from neither side, so content must not end in
  // what could begin a tag; "." stands between.
  std::string content = any_text() + ".", reasoning = thinking ? any_text() + "." : "";
  Case c{"", written(calls, content, reasoning, format, thinking), format, thinking, true, {}};
  if (content.find("｜DSML｜") != std::string::npos) RC_DISCARD("markup by chance");

  std::vector<std::string> pieces;
  for (size_t at = 0; at < c.text.size();) {
    size_t n = *rc::gen::inRange(1, 9);
    pieces.push_back(c.text.substr(at, n));
    at += n;
  }
  std::string got_content, got_reasoning, one;
  std::vector<ordered_json> got;
  for (const auto& e : parse(c, pieces)) {
    if (e.kind == Kind::kContent) got_content += e.text;
    if (e.kind == Kind::kReasoning) got_reasoning += e.text;
    if (e.kind == Kind::kCallBegin) one.clear();
    if (e.kind == Kind::kCallArguments) one += e.text;
    if (e.kind == Kind::kCallEnd) got.push_back(ordered_json::parse(one));
  }
  RC_ASSERT(got_content == content);
  RC_ASSERT(got_reasoning == reasoning);
  RC_ASSERT(got == arguments);
}

}  // namespace
}  // namespace hadal
