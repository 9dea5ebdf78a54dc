// Token ids back to text as they arrive. A token may end in the middle of a UTF-8 character: the
// bytes of an unfinished character wait for the next token, so that every piece of text that leaves
// here is valid UTF-8 by itself.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hadal {

class Tokenizer;

// Bytes to valid UTF-8. Bytes that belong to no character become U+FFFD, one per maximal prefix of
// a character (Unicode 3.9, "substitution of maximal subparts"): what Python's
// bytes.decode("utf-8", errors="replace") yields for all the bytes together.
class Utf8Stream {
 public:
  // Appends to `out` what is complete. Keeps at most 3 bytes back.
  void push(std::string_view bytes, std::string& out);
  // Replaces what is still kept back by one U+FFFD. The stream is then as new.
  void finish(std::string& out);

 private:
  void start(unsigned char byte, std::string& out);

  std::string pending_;          // prefix of one character
  int missing_ = 0;              // bytes that the character still needs
  unsigned char lowest_ = 0x80;  // what its next byte may be
  unsigned char highest_ = 0xBF;
};

class Detokenizer {
 public:
  // `tokenizer` must outlive this. skip_special leaves out the added tokens marked special.
  explicit Detokenizer(const Tokenizer& tokenizer, bool skip_special = false);

  // The text that becomes certain with this token, often "". Unknown ids add nothing.
  std::string push(int32_t id);
  // The end: U+FFFD if the last character is incomplete, else "".
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  Utf8Stream utf8_;
};

}  // namespace hadal
