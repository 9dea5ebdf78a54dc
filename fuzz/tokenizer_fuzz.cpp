// Damaged tokenizer.json files, and arbitrary text through a tokenizer that works. The first byte
// chooses: the rest as a whole file, as a patch over a valid file, or as text.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace {

using hadal::SpecialTokens;
using hadal::TextPart;
using hadal::Tokenizer;

// A small valid file: all byte tokens, merges in both spellings, added tokens of both kinds.
std::string small_file() {
  std::string vocab;
  int id = 0;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    const int c = itself ? byte : next++;
    std::string spelled;
    if (c < 0x80) {
      if (c == '"' || c == '\\') spelled += '\\';
      spelled += static_cast<char>(c);
    } else {
      spelled = {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
    }
    vocab += "\"" + spelled + "\":" + std::to_string(id++) + ",";
  }
  return R"({"added_tokens":[)"
         R"({"id":300,"content":"<|a|>","special":true,"normalized":false},)"
         R"({"id":301,"content":"<|a|><","special":false,"normalized":true}],)"
         R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[)"
         R"({"type":"Split","pattern":{"Regex":"\\p{N}{1,3}"},"behavior":"Isolated"},)"
         R"({"type":"Split","pattern":{"Regex":"[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+)"
         R"(| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},"behavior":"Isolated"},)"
         R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]},)"
         R"("decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{)" +
         vocab + R"("aa":256,"aaa":257,"ab":258,"Ġa":259,"12":260,"ĠĠ":261},)" +
         R"("merges":["a a",["aa","a"],"a b",["Ġ","a"],"1 2",["Ġ","Ġ"]]}})";
}

std::string joined_bytes(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string bytes;
  for (const int32_t id : ids) bytes += tokenizer.token_bytes(id);
  return bytes;
}

void check_text(const Tokenizer& tokenizer, std::string_view text) {
  for (const SpecialTokens mode : {SpecialTokens::kAsText, SpecialTokens::kParse}) {
    const auto ids = tokenizer.encode(text, mode);
    if (joined_bytes(tokenizer, ids) != text) __builtin_trap();
    tokenizer.decode(ids, true);
  }
  const size_t half = text.size() / 2;
  const std::array parts = {TextPart{text.substr(0, half), SpecialTokens::kParse},
                            TextPart{text.substr(half), SpecialTokens::kAsText}};
  if (joined_bytes(tokenizer, tokenizer.encode(parts)) != text) __builtin_trap();
}

void check_file(const std::string& json) {
  const auto tokenizer = Tokenizer::parse(json, "fuzz");
  if (tokenizer.ok()) check_text(tokenizer.value(), "<|a|><|a|>< aaab 123 \xFF\n\n\xE4\xB8\xAD");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string file = small_file();
  static const Tokenizer tokenizer = Tokenizer::parse(file, "built-in").value();
  if (size < 4) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 4 == 0) {
    check_file(std::string(rest));
  } else if (data[0] % 4 == 1) {
    // Two bytes say where, one how much of the file the patch replaces.
    const size_t at = (size_t{data[1]} << 8 | data[2]) % file.size();
    std::string patched = file;
    patched.replace(at, data[3], rest.substr(3));
    check_file(patched);
  } else {
    check_text(tokenizer, rest);
  }
  return 0;
}
