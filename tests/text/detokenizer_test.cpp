// Detokenizer against Python: token by token, byte by byte, and at every cut.
#include "text/detokenizer.h"

#include <gtest/gtest.h>

// RapidCheck's part for gtest needs gtest before it.
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <fstream>

#include "text/tokenizer_cases.h"

namespace hadal {
namespace {

std::string repaired(std::string_view bytes) {
  Utf8Stream stream;
  std::string text;
  stream.push(bytes, text);
  stream.finish(text);
  return text;
}

// No replacement is needed to read it, and none was put in beyond those of the whole.
bool is_utf8(const std::string& text) { return repaired(text) == text; }

TEST(Utf8Stream, ReplacesAsPythonDoes) {
  std::ifstream in(kCases + "utf8.txt");
  std::string bytes_hex, text_hex;
  size_t cases = 0;
  for (; in >> bytes_hex >> text_hex; ++cases)
    EXPECT_EQ(repaired(from_hex(bytes_hex)), from_hex(text_hex)) << bytes_hex;
  EXPECT_EQ(cases, 1250u);
}

// Unicode 3.9, table 3-8, and the ends of the ranges of table 3-7.
TEST(Utf8Stream, ReplacesMaximalPrefixes) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(repaired("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a" + r + r + r + "b" + r + "c" + r + r + "d");
  EXPECT_EQ(repaired("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(repaired("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(repaired("\xF4\x90\x80\x80"), r + r + r + r);
  EXPECT_EQ(repaired("\xF4\x8F\xBF\xBF"), "\xF4\x8F\xBF\xBF");
  EXPECT_EQ(repaired("\xED\x9F\xBF\xEE\x80\x80"), "\xED\x9F\xBF\xEE\x80\x80");
  EXPECT_EQ(repaired("\xE2\x82"), r);
}

TEST(Utf8Stream, AlwaysReadsOnAfterFinish) {
  Utf8Stream stream;
  std::string text;
  stream.push("\xE2\x82", text);
  stream.finish(text);
  stream.push("\xAC\x41", text);
  EXPECT_EQ(text, "\xEF\xBF\xBD\xEF\xBF\xBD\x41");
}

void expect_decodings(const Tokenizer& tokenizer, const std::string& file, size_t at_least) {
  std::ifstream in(file);
  size_t width = 0;
  in >> width;
  size_t cases = 0;
  std::string ids_hex, all_hex, plain_hex;
  for (; in >> ids_hex >> all_hex >> plain_hex; ++cases) {
    const std::vector<int32_t> ids = ids_from_hex(ids_hex, width);
    for (const bool skip : {false, true}) {
      const std::string wanted = from_hex(skip ? plain_hex : all_hex);
      EXPECT_EQ(tokenizer.decode(ids, skip), wanted) << ids_hex;
      Detokenizer stream(tokenizer, skip);
      std::string text;
      for (const int32_t id : ids) {
        const std::string piece = stream.push(id);
        EXPECT_TRUE(is_utf8(piece)) << ids_hex;
        text += piece;
      }
      EXPECT_EQ(text + stream.finish(), wanted) << ids_hex;
    }
  }
  EXPECT_GE(cases, at_least);
}

TEST(Detokenizer, TinyEqualsPython) {
  expect_decodings(load_tokenizer(kTinyTokenizer), kCases + "decode.txt", 625);
}

TEST(Detokenizer, ReleasedEqualsPython) {
  if (!std::filesystem::exists(kReleased + "decode.txt"))
    GTEST_SKIP() << "no " << kReleased << "decode.txt: tools/make_tokenizer_cases.py --released";
  expect_decodings(load_tokenizer(kReleased + "tokenizer.json"), kReleased + "decode.txt", 625);
}

TEST(Detokenizer, WaitsForTheWholeCharacter) {
  const Tokenizer tokenizer = load_tokenizer(kTinyTokenizer);
  Detokenizer stream(tokenizer);
  const auto push = [&](const char* byte) { return stream.push(*tokenizer.id_of(byte)); };
  EXPECT_EQ(push("\xF0"), "");
  EXPECT_EQ(push("\x9F"), "");
  EXPECT_EQ(push("\x98"), "");
  EXPECT_EQ(push("\x80"), "😀");
  EXPECT_EQ(push("\xE2"), "");
  EXPECT_EQ(push("A"), "\xEF\xBF\xBD\x41");
  EXPECT_EQ(stream.push(-5), "");
  EXPECT_EQ(stream.push(1 << 30), "");
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(push("\xE2"), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
}

// Bytes near the borders of UTF-8's rules, and whole characters.
rc::Gen<std::string> any_bytes() {
  const auto piece = rc::gen::oneOf(
      rc::gen::map(rc::gen::arbitrary<char>(), [](char c) { return std::string(1, c); }),
      rc::gen::element<std::string>("\xE2\x82", "\xF0\x9F\x98\x80", "é", "\xED\xA0", "\xF4\x90",
                                    "中", "\xC2", "\xE0\x9F", "\x80", "a"));
  return rc::gen::map(rc::gen::container<std::vector<std::string>>(piece),
                      [](const std::vector<std::string>& pieces) {
                        std::string bytes;
                        for (const std::string& piece : pieces) bytes += piece;
                        return bytes;
                      });
}

RC_GTEST_PROP(Utf8StreamProperty, EveryCutGivesTheWhole, ()) {
  const std::string bytes = *any_bytes();
  const std::string whole = repaired(bytes);
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    Utf8Stream stream;
    std::string first, second;
    stream.push(std::string_view(bytes).substr(0, cut), first);
    RC_ASSERT(is_utf8(first));
    stream.push(std::string_view(bytes).substr(cut), second);
    stream.finish(second);
    RC_ASSERT(is_utf8(second));
    RC_ASSERT(first + second == whole);
  }
}

RC_GTEST_PROP(DetokenizerProperty, EncodedTextComesBack, ()) {
  static const Tokenizer tokenizer = load_tokenizer(kCases + "crossing/tokenizer.json");
  const std::string bytes = *any_bytes();
  const std::string text = repaired(bytes);
  for (const SpecialTokens mode : {SpecialTokens::kAsText, SpecialTokens::kParse}) {
    RC_ASSERT(tokenizer.decode(tokenizer.encode(bytes, mode), false) == text);
    RC_ASSERT(tokenizer.decode(tokenizer.encode(text, mode), false) == text);
  }
}

}  // namespace
}  // namespace hadal
