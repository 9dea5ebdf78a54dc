// Reads a tokenizer.json into the tables of a Tokenizer, and refuses what they cannot express: an
// option that silently does nothing would give other ids than Python does.
#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "text/tokenizer_tables.h"

namespace hadal {
namespace {

using nlohmann::json;

constexpr int32_t kMaxIds = 1 << 21;     // bounds what a damaged file can make us allocate
constexpr size_t kMaxSplits = 16;        // one level of recursion each
constexpr size_t kMaxAddedBytes = 1024;  // a match costs at most this many steps per position
constexpr size_t kMaxShownBytes = 160;   // of a value in a message

// The GPT-2 alphabet: printable Latin-1 bytes stand for themselves, the others for U+0100 upwards.
struct ByteAlphabet {
  std::array<int32_t, 256> code_point;
  std::array<int16_t, 512> byte;  // by code point, -1 for none

  ByteAlphabet() {
    byte.fill(-1);
    int32_t next = 256;
    for (int32_t b = 0; b < 256; ++b) {
      const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b != 173);
      code_point[b] = itself ? b : next++;
      byte[code_point[b]] = static_cast<int16_t>(b);
    }
  }

  std::string spell(int b) const {
    std::array<utf8proc_uint8_t, 4> utf8;
    const auto size = utf8proc_encode_char(code_point[b], utf8.data());
    return std::string(utf8.begin(), utf8.begin() + size);
  }

  // The bytes that a vocabulary entry spells; an entry outside the alphabet stands for itself.
  std::string bytes(const std::string& spelled) const {
    std::string bytes;
    const auto* at = reinterpret_cast<const utf8proc_uint8_t*>(spelled.data());
    const auto* end = at + spelled.size();
    while (at < end) {
      utf8proc_int32_t c = -1;
      at += std::max<utf8proc_ssize_t>(1, utf8proc_iterate(at, end - at, &c));
      if (c < 0 || c >= static_cast<int32_t>(byte.size()) || byte[c] < 0) return spelled;
      bytes += static_cast<char>(byte[c]);
    }
    return bytes;
  }
};

}  // namespace

// Fills the tables, and refuses what they cannot express.
class Tokenizer::Loader {
 public:
  explicit Loader(std::string path) : path_(std::move(path)) {}

  Result<Tokenizer> run(const std::string& text) {
    json root;
    try {
      root = json::parse(text);
    } catch (const json::exception& e) {
      return bad("the file", fmt::format("not valid JSON ({})", shortened(e.what())));
    }
    if (!root.is_object()) return bad("the file", "not a JSON object");
    for (const char* key : {"truncation", "padding"}) HADAL_TRY_STATUS(off(root, "", key));
    HADAL_TRY_STATUS(normalizer(root));
    HADAL_TRY_STATUS(pre_tokenizer(root));
    HADAL_TRY_STATUS(post_processor(member(root, "post_processor"), "post_processor", 0));
    const json& decoder = member(root, "decoder");
    if (type(decoder) != "ByteLevel") return bad("decoder.type", wrong_type(decoder, "ByteLevel"));
    const json& model = member(root, "model");
    if (type(model) != "BPE") return bad("model.type", wrong_type(model, "BPE"));
    for (const char* key : {"dropout", "unk_token", "continuing_subword_prefix",
                            "end_of_word_suffix", "byte_fallback", "ignore_merges"})
      HADAL_TRY_STATUS(off(model, "model.", key));
    HADAL_TRY_STATUS(vocabulary(member(model, "vocab")));
    HADAL_TRY_STATUS(added_tokens(member(root, "added_tokens")));
    HADAL_TRY_STATUS(byte_tokens());
    HADAL_TRY_STATUS(merges(member(model, "merges")));
    index_bytes();
    return Tokenizer(std::move(tables_));
  }

  Error bad(const std::string& field, const std::string& what) const {
    return Error{
        fmt::format("[tokenizer] {}: {} is {}; use the tokenizer.json of a DeepSeek release", path_,
                    field, what)};
  }

 private:
  using Token = Tables::Token;

  static const json& member(const json& object, const char* key) {
    static const json kNull;
    if (!object.is_object()) return kNull;
    const auto it = object.find(key);
    return it == object.end() ? kNull : *it;
  }
  static std::string type(const json& object) {
    const json& value = member(object, "type");
    return value.is_string() ? value.get<std::string>() : "";
  }
  // A value for a message. Structures are only named: dump() recurses, and a file may nest deeply.
  static std::string shown(const json& value) {
    if (value.is_object()) return "an object";
    if (value.is_array() && !is_pair_of_strings(value)) return "a list";
    return shortened(value.dump(-1, ' ', false, json::error_handler_t::replace));
  }
  static std::string shortened(const std::string& text) {
    if (text.size() <= kMaxShownBytes) return text;
    size_t size = kMaxShownBytes;
    while (size > 0 && (text[size] & 0xC0) == 0x80) --size;
    return text.substr(0, size) + "...";
  }
  static bool is_pair_of_strings(const json& value) {
    return value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string();
  }
  static std::string wrong_type(const json& object, const char* wanted) {
    return fmt::format("{} where only \"{}\" is supported", shown(member(object, "type")), wanted);
  }

  // Accepts the values with which an option that we lack does nothing.
  Status off(const json& object, const std::string& prefix, const char* key) const {
    const json& value = member(object, key);
    const bool is_off = value.is_null() || value == json(false) || value == json("") ||
                        (value.is_number() && value == json(0));
    if (is_off) return {};
    return bad(prefix + key, fmt::format("{}, which is not supported", shown(value)));
  }

  Status normalizer(const json& root) const {
    const json& value = member(root, "normalizer");
    const json& steps = member(value, "normalizers");
    if (value.is_null() || (type(value) == "Sequence" && steps.is_array() && steps.empty()))
      return {};
    return bad("normalizer.type", shown(member(value, "type")) + " where none is supported");
  }

  // A post-processor inserts special tokens into a finished id list. Prompts are written with
  // theirs in the text, so that none is ever applied; the kinds that do more are refused.
  Status post_processor(const json& value, const std::string& field, int depth) const {
    if (value.is_null()) return {};
    const std::string kind = type(value);
    if (kind == "ByteLevel" || kind == "TemplateProcessing") return {};
    const json& steps = member(value, "processors");
    if (kind != "Sequence" || !steps.is_array() || depth > 0)
      return bad(field + ".type", wrong_type(value, "ByteLevel\" or \"TemplateProcessing"));
    for (size_t i = 0; i < steps.size(); ++i)
      HADAL_TRY_STATUS(post_processor(steps[i], fmt::format("{}.processors[{}]", field, i), 1));
    return {};
  }

  Status pre_tokenizer(const json& root) {
    const json& value = member(root, "pre_tokenizer");
    if (type(value) != "Sequence") return bad("pre_tokenizer.type", wrong_type(value, "Sequence"));
    const json& steps = member(value, "pretokenizers");
    if (!steps.is_array() || steps.empty() || steps.size() > kMaxSplits + 1)
      return bad("pre_tokenizer.pretokenizers",
                 fmt::format("{} where a list of at most {} Splits and one ByteLevel is expected",
                             shown(steps), kMaxSplits));
    for (size_t i = 0; i < steps.size(); ++i) {
      const std::string field = fmt::format("pre_tokenizer.pretokenizers[{}]", i);
      if (i + 1 < steps.size()) {
        HADAL_TRY_STATUS(split(steps[i], field));
        continue;
      }
      if (type(steps[i]) != "ByteLevel")
        return bad(field + ".type", wrong_type(steps[i], "ByteLevel"));
      // Both default to true, so that a missing one is as wrong as a true one.
      for (const char* key : {"add_prefix_space", "use_regex"}) {
        const json& option = member(steps[i], key);
        if (option != json(false))
          return bad(field + "." + key, shown(option) + " where only false is supported");
      }
    }
    return {};
  }

  Status split(const json& step, const std::string& field) {
    if (type(step) != "Split") return bad(field + ".type", wrong_type(step, "Split"));
    HADAL_TRY_STATUS(off(step, field + ".", "invert"));
    const json& behavior = member(step, "behavior");
    if (behavior != json("Isolated"))
      return bad(field + ".behavior", shown(behavior) + " where only \"Isolated\" is supported");
    const json& pattern = member(member(step, "pattern"), "Regex");
    if (!pattern.is_string())
      return bad(field + ".pattern",
                 shown(member(step, "pattern")) + " where only {\"Regex\": \"...\"} is supported");
    auto compiled = Regex::compile(pattern.get<std::string>());
    if (!compiled.ok())
      return bad(field + ".pattern.Regex",
                 "a pattern that cannot be used: " + compiled.error().message);
    tables_->splits.push_back(std::move(compiled).value());
    return {};
  }

  // An id as the files write it, or -1.
  static int32_t id_in(const json& value) {
    if (!value.is_number_integer()) return -1;
    if (value.is_number_unsigned() && value.get<uint64_t>() >= uint64_t{kMaxIds}) return -1;
    const auto id = value.get<int64_t>();
    return id >= 0 && id < kMaxIds ? static_cast<int32_t>(id) : -1;
  }
  std::string bad_id(const json& value) const {
    return fmt::format("{} where an id from 0 to {} is expected", shown(value), kMaxIds - 1);
  }
  Token& token(int32_t id) {
    if (static_cast<size_t>(id) >= tables_->tokens.size()) tables_->tokens.resize(size_t(id) + 1);
    return tables_->tokens[static_cast<size_t>(id)];
  }

  Status vocabulary(const json& vocab) {
    if (!vocab.is_object()) return bad("model.vocab", "missing or not an object");
    for (const auto& [spelled, value] : vocab.items()) {
      const std::string field = fmt::format("model.vocab[{}]", shown(json(spelled)));
      const int32_t id = id_in(value);
      if (id < 0) return bad(field, bad_id(value));
      Token& entry = token(id);
      if (entry.present) return bad(field, fmt::format("{}, an id used twice", id));
      entry.present = true;
      entry.bytes = alphabet_.bytes(spelled);
      vocab_.emplace(spelled, id);
    }
    return {};
  }

  Status added_tokens(const json& list) {
    if (list.is_null()) return {};
    if (!list.is_array()) return bad("added_tokens", "not a list");
    std::unordered_map<std::string, int32_t> seen;
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string field = fmt::format("added_tokens[{}]", i);
      const json& content = member(list[i], "content");
      if (!content.is_string() || content.get_ref<const std::string&>().empty() ||
          content.get_ref<const std::string&>().size() > kMaxAddedBytes)
        return bad(field + ".content", fmt::format("{} where a string of 1 to {} bytes is expected",
                                                   shown(content), kMaxAddedBytes));
      if (!seen.emplace(content.get<std::string>(), 0).second)
        return bad(field + ".content", shown(content) + ", which an earlier entry has, too");
      HADAL_TRY_STATUS(added_token(list[i], field));
    }
    return {};
  }

  Status added_token(const json& entry, const std::string& field) {
    const int32_t id = id_in(member(entry, "id"));
    if (id < 0) return bad(field + ".id", bad_id(member(entry, "id")));
    for (const char* key : {"single_word", "lstrip", "rstrip"})
      HADAL_TRY_STATUS(off(entry, field + ".", key));
    for (const char* key : {"normalized", "special"}) {
      if (!member(entry, key).is_boolean())
        return bad(field + "." + key, shown(member(entry, key)) + ", not true or false");
    }
    const auto& content = entry["content"].get_ref<const std::string&>();
    const auto same = vocab_.find(content);
    Token& added = token(id);
    if (same != vocab_.end() ? same->second != id : added.present)
      return bad(field + ".id", fmt::format("{}, which does not fit model.vocab", id));
    if (added.added) return bad(field + ".id", fmt::format("{}, an id used twice", id));
    added = Token{content, true, true, entry["special"].get<bool>()};
    const bool normalized = entry["normalized"].get<bool>();
    (normalized ? tables_->added_normalized : tables_->added).insert(content, id);
    return {};
  }

  // Without all 256, some text would have no ids.
  Status byte_tokens() {
    for (int b = 0; b < 256; ++b) {
      const std::string spelled = alphabet_.spell(b);
      const auto it = vocab_.find(spelled);
      if (it == vocab_.end())
        return bad("model.vocab", fmt::format("without \"{}\", the token of byte {}", spelled, b));
      if (tables_->tokens[static_cast<size_t>(it->second)].added)
        return bad("added_tokens", fmt::format("naming \"{}\", the token of byte {}", spelled, b));
      tables_->byte_ids[static_cast<size_t>(b)] = it->second;
    }
    return {};
  }

  Status merges(const json& list) {
    if (!list.is_array()) return bad("model.merges", "missing or not a list");
    for (size_t rank = 0; rank < list.size(); ++rank) {
      const std::string field = fmt::format("model.merges[{}]", rank);
      std::string left;
      std::string right;
      if (!merge_sides(list[rank], left, right))
        return bad(field, shown(list[rank]) + " where \"a b\" or [\"a\", \"b\"] is expected");
      std::array<int32_t, 3> ids;
      for (size_t i = 0; i < 3; ++i) {
        const std::string& part = i == 0 ? left : i == 1 ? right : left += right;
        const auto it = vocab_.find(part);
        if (it == vocab_.end())
          return bad(field, fmt::format("{}, but model.vocab has no {}", shown(list[rank]),
                                        shown(json(part))));
        ids[i] = it->second;
      }
      // Else ordinary text could forge a control token.
      if (tables_->tokens[static_cast<size_t>(ids[2])].added)
        return bad(field, shown(list[rank]) + ", which spells an added token");
      if (!tables_->merges.insert(ids[0], ids[1], static_cast<int32_t>(rank), ids[2]).second)
        return bad(field, shown(list[rank]) + ", which an earlier entry is, too");
    }
    return {};
  }

  static bool merge_sides(const json& merge, std::string& left, std::string& right) {
    if (is_pair_of_strings(merge)) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else if (merge.is_string()) {
      const auto& both = merge.get_ref<const std::string&>();
      const size_t space = both.find(' ');
      if (space == std::string::npos || both.find(' ', space + 1) != std::string::npos)
        return false;
      left = both.substr(0, space);
      right = both.substr(space + 1);
    }
    return !left.empty() && !right.empty();
  }

  void index_bytes() {
    for (const bool added : {true, false}) {
      for (size_t id = 0; id < tables_->tokens.size(); ++id) {
        const Token& entry = tables_->tokens[id];
        if (entry.added == added && !entry.bytes.empty())
          tables_->ids.emplace(entry.bytes, static_cast<int32_t>(id));
      }
    }
  }

  std::string path_;
  ByteAlphabet alphabet_;
  std::unordered_map<std::string, int32_t> vocab_;  // by spelling
  std::unique_ptr<Tables> tables_ = std::make_unique<Tables>();
};

Result<Tokenizer> Tokenizer::parse(const std::string& json, const std::string& path) {
  return Loader(path).run(json);
}

Result<Tokenizer> Tokenizer::load(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::stringstream content;
  if (!in || !(content << in.rdbuf())) return Loader(file).bad("the file", "not readable or empty");
  return parse(content.str(), file);
}

}  // namespace hadal
