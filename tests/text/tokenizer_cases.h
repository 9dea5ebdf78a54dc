// Reads the files that tools/make_tokenizer_cases.py writes: hex text, ids of a fixed hex width.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace hadal {

inline const std::string kTinyTokenizer = HADAL_MODELS "/tiny-v4/tokenizer.json";
inline const std::string kCases = HADAL_TEST_DATA "/../text/data/";
inline const std::string kReleased = HADAL_RELEASED_TOKENIZER_DIR "/";

inline Tokenizer load_tokenizer(const std::string& file) {
  auto tokenizer = Tokenizer::load(file);
  if (!tokenizer.ok()) throw std::runtime_error(tokenizer.error().message);
  return std::move(tokenizer).value();
}

inline std::string from_hex(const std::string& hex) {
  std::string bytes;
  if (hex == "-") return bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

inline std::vector<int32_t> ids_from_hex(const std::string& hex, size_t width) {
  std::vector<int32_t> ids;
  if (hex == "-") return ids;
  for (size_t i = 0; i < hex.size(); i += width)
    ids.push_back(std::stoi(hex.substr(i, width), nullptr, 16));
  return ids;
}

inline std::string joined_bytes(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string bytes;
  for (const int32_t id : ids) bytes += tokenizer.token_bytes(id);
  return bytes;
}

}  // namespace hadal
