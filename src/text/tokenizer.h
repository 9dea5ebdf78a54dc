// The tokenizer of a checkpoint, read from its tokenizer.json: byte-level BPE over isolated regex
// splits, added tokens matched first (specs V3.2 and V4, section 8.1). Ids equal those of Python
// `tokenizers` with add_special_tokens=False. What a file asks for beyond that is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hadal {

// What a string that spells an added token ("<｜User｜>", "<think>") means.
enum class SpecialTokens {
  // Ordinary text: no added token is matched, whether the file calls it special or not (the
  // released files mark <｜User｜>, <think> and the tool markers special: false). For user text.
  kAsText,
  // The token itself. For prompt text that we wrote.
  kParse,
};

struct TextPart {
  std::string_view text;
  SpecialTokens mode;
};

// Immutable after parse(): any number of threads may use one tokenizer.
class Tokenizer {
 public:
  // `json` is the content of a tokenizer.json, `path` its name in messages. Every error is one
  // sentence that names path and field.
  static Result<Tokenizer> parse(const std::string& json, const std::string& path);
  static Result<Tokenizer> load(const std::string& file);

  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // Any bytes (less than 2 GiB) are accepted and none is lost: token_bytes() of the ids, joined, is
  // the text. Bytes that are not valid UTF-8 (Python has no such strings) form pieces of their own:
  // each run of them is cut out before the regex splits and encoded byte by byte through the same
  // merges.
  std::vector<int32_t> encode(std::string_view text, SpecialTokens mode) const;

  // The parts as one text: splits and merges run across their borders as they would in the joined
  // string, but added tokens are matched inside neighbouring kParse parts only.
  std::vector<int32_t> encode(std::span<const TextPart> parts) const;

  // The text of the ids, with U+FFFD for what is not UTF-8 (see Utf8Stream). skip_special leaves
  // out added tokens marked special, as skip_special_tokens does in Python. Unknown ids add
  // nothing.
  std::string decode(std::span<const int32_t> ids, bool skip_special) const;

  // The bytes that the id stands for; "" for ids that name no token (embeddings are often padded).
  const std::string& token_bytes(int32_t id) const;

  // The id that stands for exactly these bytes ("<think>", " the"); added tokens first.
  std::optional<int32_t> id_of(std::string_view token) const;

  // An added token that the file marks special: true.
  bool is_special(int32_t id) const;

  // Highest id + 1, added tokens included.
  int32_t vocab_size() const;

 private:
  struct Tables;
  class Loader;
  class Encoder;
  explicit Tokenizer(std::unique_ptr<const Tables> tables);
  std::unique_ptr<const Tables> tables_;
};

}  // namespace hadal
