// Stop strings against a search in the whole text, for every way of splitting it.
#include "text/stop_strings.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace hadal {
namespace {

// What must come out of `text`: all before the stop string that is complete first.
std::string expected(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t cut = std::string::npos;
    for (const auto& s : stops)
      if (text.substr(0, end).ends_with(s)) cut = std::min(cut, end - s.size());
    if (cut != std::string::npos) return text.substr(0, cut);
  }
  return text;
}

TEST(StopStrings, NeverEmitsAStopSplitOverPieces) {
  StopStrings s({"\n\nQuestion:"});
  EXPECT_EQ(s.feed("#### 18"), "#### 18");
  EXPECT_EQ(s.feed("\n"), "");
  EXPECT_EQ(s.feed("\nQuest"), "");
  EXPECT_FALSE(s.stopped());
  EXPECT_EQ(s.feed("ion: and more"), "");
  EXPECT_TRUE(s.stopped());
  EXPECT_EQ(s.feed("anything"), "");
  EXPECT_EQ(s.flush(), "");
}

TEST(StopStrings, ReleasesWhatTurnsOutToBeNoStop) {
  StopStrings s({"abc"});
  EXPECT_EQ(s.feed("xab"), "x");
  EXPECT_EQ(s.feed("ab"), "ab");
  EXPECT_EQ(s.flush(), "ab");
  EXPECT_FALSE(s.stopped());
}

TEST(StopStrings, NoStopsPassEverything) {
  StopStrings s({});
  EXPECT_EQ(s.feed("abc"), "abc");
  EXPECT_EQ(s.flush(), "");
}

TEST(StopStrings, TheFirstCompleteOneWins) {
  for (std::vector<std::string> pieces : {std::vector<std::string>{"abc"}, {"a", "b", "c"}}) {
    StopStrings s({"abc", "b"});
    std::string out;
    for (const auto& piece : pieces) out += s.feed(piece);
    EXPECT_EQ(out, "a");
    EXPECT_EQ(s.matched(), "b");
  }
}

RC_GTEST_PROP(StopStrings, SplittingDoesNotMatter, ()) {
  auto word = rc::gen::container<std::string>(rc::gen::elementOf(std::string("ab")));
  auto stops = *rc::gen::container<std::vector<std::string>>(rc::gen::nonEmpty(word));
  auto pieces = *rc::gen::container<std::vector<std::string>>(word);
  std::string text, out;
  for (const auto& piece : pieces) text += piece;
  StopStrings s(stops);
  for (const auto& piece : pieces) out += s.feed(piece);
  out += s.flush();
  RC_ASSERT(out == expected(text, stops));
  RC_ASSERT(s.stopped() == (expected(text, stops) != text));
}

}  // namespace
}  // namespace hadal
