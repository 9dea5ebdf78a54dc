// Tokenizer against Python `tokenizers` (files of tools/make_tokenizer_cases.py), against arbitrary
// bytes, and against files that it must refuse.
#include "text/tokenizer.h"

#include <gtest/gtest.h>

// RapidCheck's part for gtest needs gtest before it.
#include <fmt/format.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "text/regex.h"
#include "text/tokenizer_cases.h"

namespace hadal {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

constexpr auto kAsText = SpecialTokens::kAsText;
constexpr auto kParse = SpecialTokens::kParse;

// Every line of an encode.txt; returns how many strings there were.
size_t expect_encodings(const Tokenizer& tokenizer, const std::string& file) {
  std::ifstream in(file);
  size_t width = 0;
  in >> width;
  size_t strings = 0;
  size_t wrong = 0;
  std::string mode, text_hex, ids_hex;
  while (in >> mode >> text_hex >> ids_hex) {
    const std::string text = from_hex(text_hex);
    const Ids wanted = ids_from_hex(ids_hex, width);
    strings += mode == "T" ? 0 : 1;
    for (const SpecialTokens tokens : {kParse, kAsText}) {
      if (mode == (tokens == kParse ? "T" : "P")) continue;
      const Ids ids = tokenizer.encode(text, tokens);
      if (ids == wanted || ++wrong > 10) continue;
      ADD_FAILURE() << mode << " " << text_hex << " \"" << text << "\"\n got "
                    << testing::PrintToString(ids) << "\nwant " << testing::PrintToString(wanted);
    }
  }
  EXPECT_LE(wrong, 10u) << "more differ than are shown";
  return strings;
}

TEST(Encode, TinyEqualsPythonOnTenThousandStrings) {
  EXPECT_EQ(expect_encodings(load_tokenizer(kTinyTokenizer), kCases + "encode.txt"), 10000u);
}

TEST(Encode, BothTinyModelsShareTheTokenizer) {
  std::ifstream v4(kTinyTokenizer), v32(HADAL_MODELS "/tiny-v3.2/tokenizer.json");
  EXPECT_EQ(json::parse(v4), json::parse(v32));
}

// Merges cross every border between pieces here, and added tokens overlap.
TEST(Encode, CrossingEqualsPython) {
  const Tokenizer tokenizer = load_tokenizer(kCases + "crossing/tokenizer.json");
  EXPECT_EQ(expect_encodings(tokenizer, kCases + "crossing/encode.txt"), 2500u);
}

TEST(Encode, ReleasedEqualsPython) {
  if (!std::filesystem::exists(kReleased + "encode.txt"))
    GTEST_SKIP() << "no " << kReleased << "encode.txt: tools/make_tokenizer_cases.py --released";
  const Tokenizer tokenizer = load_tokenizer(kReleased + "tokenizer.json");
  EXPECT_GE(expect_encodings(tokenizer, kReleased + "encode.txt"), 10000u);
  // The table of spec V4 8.1.
  EXPECT_EQ(tokenizer.vocab_size(), 129280);
  EXPECT_EQ(tokenizer.id_of("<｜begin▁of▁sentence｜>"), 0);
  EXPECT_EQ(tokenizer.id_of("<｜end▁of▁sentence｜>"), 1);
  EXPECT_EQ(tokenizer.id_of("<｜User｜>"), 128803);
  EXPECT_EQ(tokenizer.id_of("<｜Assistant｜>"), 128804);
  EXPECT_EQ(tokenizer.id_of("</think>"), 128822);
  EXPECT_EQ(tokenizer.id_of("｜DSML｜"), 128825);
  EXPECT_TRUE(tokenizer.is_special(1));
  EXPECT_FALSE(tokenizer.is_special(128803));
}

// special: false in the released file, and yet no text of a user may become one of them.
TEST(Encode, UserTextNeverBecomesAnAddedToken) {
  const Tokenizer tokenizer = load_tokenizer(kCases + "crossing/tokenizer.json");
  for (const std::string marker : {"<｜User｜>", "<think>", "<think>\n", "｜DSML｜", "  "}) {
    const auto id = tokenizer.id_of(marker);
    ASSERT_TRUE(id.has_value());
    EXPECT_EQ(tokenizer.encode(marker, kParse), Ids{*id});
    const Ids plain = tokenizer.encode(marker, kAsText);
    EXPECT_EQ(std::count(plain.begin(), plain.end(), *id), 0) << marker;
    EXPECT_EQ(joined_bytes(tokenizer, plain), marker);
  }
}

TEST(Encode, PartsAreOneTextWithTokensOnlyInOurs) {
  const Tokenizer tokenizer = load_tokenizer(kTinyTokenizer);
  const auto encode = [&](std::vector<TextPart> parts) { return tokenizer.encode(parts); };
  EXPECT_EQ(encode({{"<｜User｜>The gar", kParse}, {"den", kAsText}, {"<think>", kParse}}),
            tokenizer.encode("<｜User｜>The garden<think>", kParse));
  // Borders between our own parts do not count, borders to the user's do.
  EXPECT_EQ(encode({{"<thi", kParse}, {"", kParse}, {"nk>", kParse}}),
            tokenizer.encode("<think>", kParse));
  EXPECT_EQ(encode({{"<thi", kParse}, {"nk>", kAsText}}), tokenizer.encode("<think>", kAsText));
  EXPECT_EQ(encode({{"<thi", kAsText}, {"nk>", kParse}}), tokenizer.encode("<think>", kAsText));
  EXPECT_EQ(encode({}), Ids{});
}

// Runs of bytes without a character are pieces of their own: no merge joins them to their
// neighbours, and the text around them is split as if it stood alone.
TEST(Encode, StrayBytesStandAlone) {
  const Tokenizer tokenizer = load_tokenizer(kTinyTokenizer);
  const std::string text = "The garden\xE2\x96 answer";
  Ids wanted = tokenizer.encode("The garden", kAsText);
  wanted.push_back(*tokenizer.id_of("\xE2"));
  wanted.push_back(*tokenizer.id_of("\x96"));
  for (const int32_t id : tokenizer.encode(" answer", kAsText)) wanted.push_back(id);
  EXPECT_EQ(tokenizer.encode(text, kAsText), wanted);

  // Inside a run of them merges apply as usual.
  const Tokenizer crossing = load_tokenizer(kCases + "crossing/tokenizer.json");
  const auto begin_of_emoji = crossing.id_of("\xF0\x9F");
  ASSERT_TRUE(begin_of_emoji.has_value());
  EXPECT_EQ(crossing.encode("\xF0\x9F", kAsText), Ids{*begin_of_emoji});
}

// Linear or n log n: anything quadratic would run into the test's time limit.
TEST(Encode, LongRunsLoseNothing) {
  const Tokenizer tokenizer = load_tokenizer(kCases + "crossing/tokenizer.json");
  for (const std::string unit : {"a", " ", "\n", " \n", "7", "<", "<｜", "中", "\xCC\x81", "\x01",
                                 "\xFF", "a\xFF", "\xE2\x82", "😀", "Aa", "!a", "\t "}) {
    std::string text;
    while (text.size() < 400'000) text += unit;
    EXPECT_TRUE(joined_bytes(tokenizer, tokenizer.encode(text, kParse)) == text) << unit;
    text += "x";
    EXPECT_TRUE(joined_bytes(tokenizer, tokenizer.encode(text, kAsText)) == text) << unit;
  }
}

// Bytes, and pieces of added tokens, characters and blanks in any order.
rc::Gen<std::string> any_text() {
  const auto fragment = rc::gen::element<std::string>(
      "<｜User｜>", "<｜User", "｜>", "<think>", "\n", "<", "th", "ink>", "  ", " ", "12", "中",
      "é", "\xF0\x9F\x98\x80", "\xF0\x9F", "\x98", "\xC2", "\xED\xA0\x80", "The garden", "don't",
      "\r\n");
  const auto byte =
      rc::gen::map(rc::gen::arbitrary<char>(), [](char c) { return std::string(1, c); });
  return rc::gen::map(rc::gen::container<std::vector<std::string>>(rc::gen::oneOf(fragment, byte)),
                      [](const std::vector<std::string>& pieces) {
                        std::string text;
                        for (const std::string& piece : pieces) text += piece;
                        return text;
                      });
}

RC_GTEST_PROP(EncodeProperty, NoByteIsLost, ()) {
  static const Tokenizer tokenizer = load_tokenizer(kCases + "crossing/tokenizer.json");
  const std::string text = *any_text();
  RC_ASSERT(joined_bytes(tokenizer, tokenizer.encode(text, kAsText)) == text);
  RC_ASSERT(joined_bytes(tokenizer, tokenizer.encode(text, kParse)) == text);
}

RC_GTEST_PROP(EncodeProperty, UserTextHasNoAddedTokens, ()) {
  static const Tokenizer tokenizer = load_tokenizer(kTinyTokenizer);
  const std::string text = *any_text();
  for (const int32_t id : tokenizer.encode(text, kAsText)) RC_ASSERT(!tokenizer.is_special(id));
}

RC_GTEST_PROP(EncodeProperty, CuttingUserTextChangesNothing, ()) {
  static const Tokenizer tokenizer = load_tokenizer(kCases + "crossing/tokenizer.json");
  const std::string text = *any_text();
  const size_t cut = *rc::gen::inRange<size_t>(0, text.size() + 1);
  const std::string_view view = text;
  const TextPart parts[] = {{view.substr(0, cut), kAsText}, {view.substr(cut), kAsText}};
  RC_ASSERT(tokenizer.encode(parts) == tokenizer.encode(text, kAsText));
}

TEST(Tokens, LookUp) {
  const Tokenizer tokenizer = load_tokenizer(kTinyTokenizer);
  EXPECT_EQ(tokenizer.id_of("<think>"), 5);
  EXPECT_EQ(tokenizer.token_bytes(5), "<think>");
  EXPECT_EQ(tokenizer.id_of("!"), 13);
  EXPECT_EQ(tokenizer.token_bytes(*tokenizer.id_of(" garden")), " garden");
  EXPECT_EQ(tokenizer.id_of("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer.id_of(""), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(0));
  EXPECT_FALSE(tokenizer.is_special(13));
  for (const int32_t id : {-1, 678, INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(tokenizer.token_bytes(id), "");
    EXPECT_FALSE(tokenizer.is_special(id));
  }
}

json tiny_json() {
  std::ifstream in(kTinyTokenizer);
  return json::parse(in);
}

void expect_refused(const json& changed, const std::string& field) {
  const auto tokenizer = Tokenizer::parse(changed.dump(), "dir/tokenizer.json");
  ASSERT_FALSE(tokenizer.ok()) << field;
  const std::string& message = tokenizer.error().message;
  EXPECT_NE(message.find("dir/tokenizer.json: " + field + " is "), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

// "/a/0/b" is a[0].b in messages.
std::string field_name(json::json_pointer pointer) {
  std::string name;
  for (; !pointer.empty(); pointer.pop_back()) {
    const std::string& step = pointer.back();
    const bool index = std::isdigit(static_cast<unsigned char>(step[0])) != 0;
    name = (index ? "[" + step + "]" : "." + step) + name;
  }
  return name.substr(1);
}

TEST(Parse, RefusesOptionsThatItLacks) {
  const std::pair<std::string, json> changes[] = {
      {"/truncation", {{"max_length", 8}}},
      {"/padding", {{"length", 8}}},
      {"/normalizer/type", "NFC"},
      {"/pre_tokenizer/type", "ByteLevel"},
      {"/pre_tokenizer/pretokenizers", json::array()},
      {"/pre_tokenizer/pretokenizers/0/type", "Digits"},
      {"/pre_tokenizer/pretokenizers/1/behavior", "Removed"},
      {"/pre_tokenizer/pretokenizers/2/invert", true},
      {"/pre_tokenizer/pretokenizers/0/pattern", {{"String", "a"}}},
      {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "\\p{Greek}"},
      {"/pre_tokenizer/pretokenizers/3/type", "Split"},
      {"/pre_tokenizer/pretokenizers/3/use_regex", true},
      {"/pre_tokenizer/pretokenizers/3/add_prefix_space", true},
      {"/post_processor/type", "BertProcessing"},
      {"/decoder/type", "Metaspace"},
      {"/model/type", "Unigram"},
      {"/model/dropout", 0.1},
      {"/model/unk_token", "<unk>"},
      {"/model/continuing_subword_prefix", "##"},
      {"/model/end_of_word_suffix", "</w>"},
      {"/model/byte_fallback", true},
      {"/model/ignore_merges", true},
      {"/added_tokens/3/lstrip", true},
      {"/added_tokens/3/rstrip", true},
      {"/added_tokens/3/single_word", true},
  };
  for (const auto& [pointer, value] : changes) {
    json changed = tiny_json();
    if (changed["normalizer"].is_null() && pointer == "/normalizer/type")
      changed["normalizer"] = json::object();
    if (pointer == "/post_processor/type") changed["post_processor"] = json::object();
    changed[json::json_pointer(pointer)] = value;
    expect_refused(changed, field_name(json::json_pointer(pointer)));
  }
}

TEST(Parse, RefusesMissingKeys) {
  const std::pair<std::string, std::string> fields[] = {
      {"/pre_tokenizer", "pre_tokenizer.type"},
      {"/decoder", "decoder.type"},
      {"/model", "model.type"},
      {"/model/vocab", "model.vocab"},
      {"/model/merges", "model.merges"},
      {"/added_tokens/1/id", "added_tokens[1].id"},
      {"/added_tokens/1/content", "added_tokens[1].content"},
      {"/added_tokens/1/special", "added_tokens[1].special"},
      {"/added_tokens/1/normalized", "added_tokens[1].normalized"},
  };
  for (const auto& [pointer, field] : fields) {
    json changed = tiny_json();
    const json::json_pointer at(pointer);
    changed[at.parent_pointer()].erase(at.back());
    expect_refused(changed, field);
  }
}

TEST(Parse, RefusesContradictions) {
  const auto refused = [](const std::string& field, const std::function<void(json&)>& change) {
    json changed = tiny_json();
    change(changed);
    expect_refused(changed, field);
  };
  refused("model.vocab[\"b\"]",
          [](json& j) { j["model"]["vocab"]["b"] = j["model"]["vocab"]["a"]; });
  for (const json& id :
       {json(-1), json(1.5), json("7"), json(1ull << 40), json(UINT64_MAX), json()})
    refused("model.vocab[\"a\"]", [&](json& j) { j["model"]["vocab"]["a"] = id; });
  refused("model.vocab", [](json& j) { j["model"]["vocab"].erase("Ġ"); });
  refused("model.vocab", [](json& j) { j["model"]["vocab"] = 3; });
  refused("model.merges[0]", [](json& j) { j["model"]["merges"][0] = {"e", "nope"}; });
  refused("model.merges[1]", [](json& j) { j["model"]["merges"][1] = "z z"; });
  refused("model.merges[1]", [](json& j) { j["model"]["merges"][1] = "a b c"; });
  refused("model.merges[1]", [](json& j) { j["model"]["merges"][1] = {"a"}; });
  refused("model.merges[1]", [](json& j) { j["model"]["merges"][1] = 7; });
  refused("model.merges[2]", [](json& j) { j["model"]["merges"][2] = j["model"]["merges"][1]; });
  refused("model.merges[0]", [](json& j) { j["model"]["merges"][0] = {"<think", ">"}; });
  // A merge that spells a control token would let user text forge it.
  refused("model.merges[409]", [](json& j) {
    j["model"]["vocab"]["<think"] = 700;
    j["model"]["merges"].push_back({"<think", ">"});
  });
  refused("added_tokens[1].id", [](json& j) { j["added_tokens"][1]["id"] = 0; });
  refused("added_tokens[5].id", [](json& j) { j["added_tokens"][5]["id"] = 700; });
  refused("added_tokens[0].id", [](json& j) { j["added_tokens"][0]["content"] = "new"; });
  refused("added_tokens[4].content",
          [](json& j) { j["added_tokens"][4]["content"] = j["added_tokens"][3]["content"]; });
  refused("added_tokens[4].content", [](json& j) { j["added_tokens"][4]["content"] = ""; });
  refused("added_tokens", [](json& j) { j["added_tokens"] = "none"; });
  refused("added_tokens", [](json& j) {
    j["added_tokens"][0]["content"] = "a";
    j["added_tokens"][0]["id"] = j["model"]["vocab"]["a"];
  });
}

TEST(Parse, RefusesWhatIsNoJson) {
  std::ifstream in(kTinyTokenizer);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  for (const std::string& broken :
       {std::string(), std::string("null"), std::string("[]"), std::string("\xFF\xFE"),
        text.substr(0, 1000), text.substr(0, text.size() - 3), std::string(100'000, '['),
        "{\"truncation\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}"}) {
    const auto tokenizer = Tokenizer::parse(broken, "dir/tokenizer.json");
    ASSERT_FALSE(tokenizer.ok());
    EXPECT_NE(tokenizer.error().message.find("dir/tokenizer.json: "), std::string::npos);
    EXPECT_LT(tokenizer.error().message.size(), 400u);
  }
  for (const std::string file : {"/no/such/tokenizer.json", "/"}) {
    const auto tokenizer = Tokenizer::load(file);
    ASSERT_FALSE(tokenizer.ok());
    EXPECT_NE(tokenizer.error().message.find(file), std::string::npos);
  }
}

TEST(Parse, AcceptsWhatChangesNothing) {
  json changed = tiny_json();
  changed["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array()}};
  changed["post_processor"] = {{"type", "Sequence"},
                               {"processors", {{{"type", "TemplateProcessing"}}}}};
  changed["model"]["dropout"] = 0.0;
  changed["model"]["continuing_subword_prefix"] = "";
  for (json& merge : changed["model"]["merges"])
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  const auto tokenizer = Tokenizer::parse(changed.dump(), "t");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const std::string text = "<｜User｜>The shop sells 12 apples.";
  EXPECT_EQ(tokenizer.value().encode(text, kParse),
            load_tokenizer(kTinyTokenizer).encode(text, kParse));
}

Regex compiled(const std::string& pattern) {
  auto regex = Regex::compile(pattern);
  if (!regex.ok()) throw std::runtime_error(regex.error().message);
  return std::move(regex).value();
}

std::string utf8(uint32_t c) {
  if (c < 0x80) return {static_cast<char>(c)};
  std::string text;
  for (int shift = c < 0x800 ? 6 : c < 0x10000 ? 12 : 18; shift >= 0; shift -= 6)
    text += static_cast<char>(0x80 | (c >> shift & 0x3F));
  text[0] = static_cast<char>(c < 0x800     ? 0xC0 | c >> 6
                              : c < 0x10000 ? 0xE0 | c >> 12
                                            : 0xF0 | c >> 18);
  return text;
}

// classes.txt states every code point's class in Oniguruma; inside a class, outside, and negated.
TEST(SplitPattern, EveryCodePointHasPythonsClass) {
  std::map<uint32_t, char> runs;
  std::ifstream in(kCases + "classes.txt");
  std::string first;
  for (char name; in >> first >> name;)
    runs[static_cast<uint32_t>(std::stoul(first, nullptr, 16))] = name;
  ASSERT_GT(runs.size(), 2000u);
  RegexScratch scratch;
  for (const auto& [name, property, inverse] : {std::tuple{'N', "\\p{N}", "\\P{N}"},
                                                {'L', "\\p{L}", "\\P{L}"},
                                                {'M', "\\p{M}", "\\P{M}"},
                                                {'P', "\\p{P}", "\\P{P}"},
                                                {'S', "\\p{S}", "\\P{S}"},
                                                {'s', "\\s", "\\S"}}) {
    const Regex plain = compiled(property);
    const Regex in_class = compiled(fmt::format("[{}]", property));
    const Regex outside = compiled(fmt::format("[^{}]", property));
    const Regex negated = compiled(inverse);
    size_t wrong = 0;
    char name_here = '-';
    for (uint32_t c = 0; c < 0x110000; ++c) {
      if (const auto run = runs.find(c); run != runs.end()) name_here = run->second;
      if (c >= 0xD800 && c < 0xE000) continue;
      const std::string text = utf8(c);
      const bool wanted = name_here == name;
      wrong += plain.find(text, 0, scratch).has_value() != wanted;
      wrong += in_class.find(text, 0, scratch).has_value() != wanted;
      wrong += outside.find(text, 0, scratch).has_value() == wanted;
      wrong += negated.find(text, 0, scratch).has_value() == wanted;
    }
    EXPECT_EQ(wrong, 0u) << name;
  }
}

TEST(SplitPattern, RefusesWhatTheEnginesReadDifferently) {
  for (const char* pattern :
       {"a^",      "$",          ".",          "\\d",         "\\w",    "\\h",      "\\b",
        "\\1",     "\\x41",      "\\u0041",    "\\p{Lu}",     "\\pL",   "\\p{^L}",  "\\p{L",
        "[\\S]",   "[\\P{L}]",   "[a[b]]",     "[[:alpha:]]", "[a&&b]", "[]a]",     "[^]a]",
        "[a",      "[\\p{L}-z]", "[a-\\s]",    "(*UTF)a",     "(?i:a)", "(?<n>a)",  "(?>a)",
        "(?#a)",   "(a",         "a)",         "a{,3}",       "a{1",    "a{1,2,3}", "a{1}+",
        "a{1,2}?", "{",          "a{100,200}", "*",           "a**",    "a*",       "(?=a)",
        "\\",      "a|",         "",           "\\`a",        "[b-a]"})
    EXPECT_FALSE(Regex::compile(pattern).ok()) << pattern;
}

TEST(SplitPattern, GivesUpWithoutFailing) {
  RegexScratch scratch;
  // Every repetition of the group is a backtracking point: more than a small stack can hold.
  const std::string letters(20'000, 'a');
  const auto match = compiled("(?:ab|a)+").find(letters, 0, scratch);
  ASSERT_TRUE(match.has_value());
  EXPECT_EQ(match->end, letters.size());
  // Exponential: no engine finishes this, the text stays whole.
  EXPECT_FALSE(compiled("(?:a|aa)+c").find(std::string(200, 'a'), 0, scratch).has_value());
  // More steps than PCRE2's default limit allows.
  const std::string blanks(12'000'000, ' ');
  const auto run = compiled("\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+").find(blanks, 0, scratch);
  ASSERT_TRUE(run.has_value());
  EXPECT_EQ(run->end, blanks.size());

  json changed = tiny_json();
  changed["pre_tokenizer"]["pretokenizers"][2]["pattern"]["Regex"] = "(?:a|b|ab)+c|(?:ab|a|b)+";
  const auto tokenizer = Tokenizer::parse(changed.dump(), "t");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  std::string text;
  while (text.size() < 100'000) text += "ab";
  EXPECT_TRUE(joined_bytes(tokenizer.value(), tokenizer.value().encode(text, kAsText)) == text);
}

}  // namespace
}  // namespace hadal
