// See detokenizer.h.
#include "text/detokenizer.h"

#include "text/tokenizer.h"

namespace hadal {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

void Utf8Stream::push(std::string_view bytes, std::string& out) {
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (missing_ == 0) {
      start(byte, out);
    } else if (byte >= lowest_ && byte <= highest_) {
      pending_ += c;
      lowest_ = 0x80;
      highest_ = 0xBF;
      if (--missing_ == 0) {
        out += pending_;
        pending_.clear();
      }
    } else {
      finish(out);
      start(byte, out);
    }
  }
}

// The first byte fixes the length, and for four of them narrows the second byte: no overlong forms,
// no surrogates, nothing above U+10FFFF.
void Utf8Stream::start(unsigned char byte, std::string& out) {
  if (byte < 0x80) {
    out += static_cast<char>(byte);
    return;
  }
  if (byte < 0xC2 || byte > 0xF4) {
    out += kReplacement;
    return;
  }
  missing_ = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
  lowest_ = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
  highest_ = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
  pending_ = static_cast<char>(byte);
}

void Utf8Stream::finish(std::string& out) {
  if (missing_ > 0) out += kReplacement;
  pending_.clear();
  missing_ = 0;
}

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(tokenizer), skip_special_(skip_special) {}

std::string Detokenizer::push(int32_t id) {
  std::string text;
  if (!(skip_special_ && tokenizer_.is_special(id))) utf8_.push(tokenizer_.token_bytes(id), text);
  return text;
}

std::string Detokenizer::finish() {
  std::string text;
  utf8_.finish(text);
  return text;
}

}  // namespace hadal
