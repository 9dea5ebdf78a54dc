// A scanner of Python's tokens, as far as strings, comments, brackets and assignments go.
#include "text/python_literals.h"

#include <cctype>
#include <cstdint>

namespace hadal {
namespace {

bool is_name_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || uint8_t(c) >= 0x80;
}

void append_utf8(uint32_t code, std::string* out) {
  if (code < 0x80) {
    *out += char(code);
  } else if (code < 0x800) {
    *out += char(0xc0 | code >> 6);
    *out += char(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    *out += char(0xe0 | code >> 12);
    *out += char(0x80 | (code >> 6 & 0x3f));
    *out += char(0x80 | (code & 0x3f));
  } else if (code < 0x110000) {
    *out += char(0xf0 | code >> 18);
    *out += char(0x80 | (code >> 12 & 0x3f));
    *out += char(0x80 | (code >> 6 & 0x3f));
    *out += char(0x80 | (code & 0x3f));
  }
}

class Scanner {
 public:
  explicit Scanner(std::string_view source) : s_(source) {}

  PythonLiterals scan() {
    while (at_ < s_.size()) step();
    end_literal();
    return std::move(found_);
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < s_.size() ? s_[at_ + ahead] : '\0'; }

  void step() {
    char c = peek();
    if (c == '#') {
      while (at_ < s_.size() && peek() != '\n') ++at_;
    } else if (c == '\n') {
      ++at_;
      if (depth_ == 0) end_statement();
    } else if (c == ' ' || c == '\t' || c == '\f') {
      ++at_;
    } else if (c == '\\' && peek(1) == '\n') {
      at_ += 2;
    } else if (c == '"' || c == '\'') {
      read_literal(/*raw=*/false, /*format=*/false);
    } else if (is_name_char(c)) {
      read_word();
    } else {
      read_sign(c);
    }
  }

  // A name, a number, or the prefix of a literal.
  void read_word() {
    size_t start = at_;
    while (at_ < s_.size() && is_name_char(peek())) ++at_;
    std::string_view word = s_.substr(start, at_ - start);
    bool quote = peek() == '"' || peek() == '\'';
    if (quote && word.size() <= 2 && word.find_first_not_of("rRbBuUfF") == word.npos) {
      read_literal(word.find_first_of("rR") != word.npos, word.find_first_of("fF") != word.npos);
      return;
    }
    end_literal();
    // A name of a statement is its first word; what follows ": type" is not.
    if (statement_start_) name_ = std::string(word);
    statement_start_ = false;
    assigned_ = false;  // NAME = f("...") says nothing about NAME
  }

  void read_sign(char c) {
    ++at_;
    if (c == '+' && open_) return;  // "a" + "b"
    end_literal();
    statement_start_ = false;
    if (c == '(' || c == '[' || c == '{') ++depth_;
    if (depth_ > 0 && (c == ')' || c == ']' || c == '}')) --depth_;
    if (c == '=' && depth_ == 0) {
      char before = at_ > 1 ? s_[at_ - 2] : '\0';
      bool compares = peek() == '=' ||
                      std::string_view("=!<>+-*/%&|^@:").find(before) != std::string_view::npos;
      assigned_ = !compares;
    }
    if (c == ';' && depth_ == 0) end_statement();
  }

  void read_literal(bool raw, bool format) {
    char quote = peek();
    bool triple = peek(1) == quote && peek(2) == quote;
    at_ += triple ? 3 : 1;
    open_ = true;
    statement_start_ = false;
    while (at_ < s_.size()) {
      char c = peek();
      if (c == quote && (!triple || (peek(1) == quote && peek(2) == quote))) {
        at_ += triple ? 3 : 1;
        return;
      }
      if (c == '\n' && !triple) return;  // not Python; the next line starts afresh
      if (c == '\\') {
        read_escape(raw);
      } else if (format && (c == '{' || c == '}') && peek(1) == c) {
        value_ += c;
        at_ += 2;
      } else {
        value_ += c;
        ++at_;
      }
    }
  }

  void read_escape(bool raw) {
    char c = peek(1);
    if (raw) {
      value_ += '\\';
      ++at_;
      if (at_ < s_.size()) value_ += s_[at_++];
      return;
    }
    static constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
    at_ += 2;
    if (size_t i = kFrom.find(c); i != kFrom.npos && c != '\0') {
      value_ += kTo[i];
    } else if (c == '\n') {
      // A line continued inside a literal.
    } else if (c == 'x') {
      read_code(16, 2);
    } else if (c == 'u') {
      read_code(16, 4);
    } else if (c == 'U') {
      read_code(16, 8);
    } else if (c >= '0' && c <= '7') {
      --at_;
      read_code(8, 3);
    } else {
      value_ += '\\';
      at_ -= 1;
    }
  }

  void read_code(int base, int digits) {
    uint32_t code = 0;
    for (; digits > 0 && at_ < s_.size(); --digits) {
      char c = char(std::tolower(static_cast<unsigned char>(peek())));
      int value = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : base;
      if (value >= base) break;
      code = code * base + value;
      ++at_;
    }
    append_utf8(code, &value_);
  }

  void end_literal() {
    if (!open_) return;
    if (assigned_ && !name_.empty()) found_.names.emplace_back(name_, value_);
    name_.clear();
    found_.values.push_back(std::move(value_));
    value_.clear();
    open_ = false;
  }

  void end_statement() {
    end_literal();
    name_.clear();
    assigned_ = false;
    statement_start_ = true;
  }

  std::string_view s_;
  size_t at_ = 0;
  int depth_ = 0;
  PythonLiterals found_;
  bool open_ = false;  // value_ holds a literal that a neighbour may still extend
  std::string value_;
  bool statement_start_ = true, assigned_ = false;
  std::string name_;
};

}  // namespace

PythonLiterals python_literals(std::string_view source) {
  // Python reads every line end as \n, in literals too.
  std::string lines;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      lines += source[i];
    } else if (i + 1 == source.size() || source[i + 1] != '\n') {
      lines += '\n';
    }
  }
  return Scanner(lines).scan();
}

}  // namespace hadal
