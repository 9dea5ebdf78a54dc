// A small line editor: append, erase a character, a word or all. The terminal sends bytes as they
// are typed and echoes nothing; signals stay on.
#include "line_input.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdio>

#include "interrupt.h"

namespace hadal {
namespace {

// Terminal settings for as long as a line is edited.
class TypedBytes {
 public:
  explicit TypedBytes(int fd) : fd_(fd) {
    tcgetattr(fd_, &before_);
    termios now = before_;
    now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    now.c_cc[VMIN] = 1;
    now.c_cc[VTIME] = 0;
    tcsetattr(fd_, TCSADRAIN, &now);
    std::fputs("\033[?2004h", stdout);  // pasted text comes between marks
  }
  ~TypedBytes() {
    std::fputs("\033[?2004l", stdout);
    std::fflush(stdout);
    tcsetattr(fd_, TCSADRAIN, &before_);
  }

 private:
  int fd_;
  termios before_ = {};
};

size_t last_character(const std::string& s) {
  size_t i = s.size();
  while (i > 0 && (static_cast<unsigned char>(s[--i]) & 0xc0) == 0x80) {
  }
  return i;
}

size_t last_word(const std::string& s) {
  size_t i = s.size();
  while (i > 0 && s[i - 1] == ' ') --i;
  while (i > 0 && s[i - 1] != ' ' && s[i - 1] != '\n') --i;
  return i;
}

// Lines of the terminal below the first that a text takes.
int rows_below(const std::string& text, int columns) {
  int rows = 0, column = 0;
  for (size_t i = 0; i < text.size();) {
    utf8proc_int32_t c = 0;
    auto n = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + i,
                              static_cast<utf8proc_ssize_t>(text.size() - i), &c);
    i += n > 0 ? n : 1;
    int width = n > 0 ? utf8proc_charwidth(c) : 1;
    if (c == '\n' || column + width > columns) {
      ++rows;
      column = 0;
    }
    column += c == '\n' ? 0 : width;
  }
  return rows;
}

int columns_of(int fd) {
  winsize size = {};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

LineInput::LineInput(int fd) : fd_(fd), terminal_(isatty(fd) == 1) {}

int LineInput::next_byte() {
  if (at_ == buffer_.size()) {
    buffer_.resize(65536);
    at_ = 0;
    ssize_t n = -2;
    if (wait_readable(fd_)) n = ::read(fd_, buffer_.data(), buffer_.size());
    buffer_.resize(n > 0 ? n : 0);
    if (n == -2) return -2;
    if (n <= 0) return n < 0 && errno == EINTR ? -2 : -1;
  }
  return static_cast<unsigned char>(buffer_[at_++]);
}

LineInput::Got LineInput::read(const std::string& prompt, std::string& line) {
  line.clear();
  return terminal_ ? edit(prompt, line) : read_pipe(line);
}

LineInput::Got LineInput::read_pipe(std::string& line) {
  for (;;) {
    int c = next_byte();
    if (c == -2) return Got::kInterrupt;
    if (c == -1) return line.empty() ? Got::kEnd : Got::kLine;
    if (c == '\n') return Got::kLine;
    line += static_cast<char>(c);
  }
}

// Cuts the line to `keep` bytes and draws it anew.
void LineInput::erase(const std::string& prompt, std::string& line, size_t keep) {
  int up = rows_below(prompt + line, columns_of(fd_));
  if (up > 0) std::printf("\033[%dA", up);
  line.resize(keep);
  std::printf("\r\033[J%s%s", prompt.c_str(), line.c_str());
}

// An escape sequence: the marks of a pasted text count, arrows and the like do nothing.
void LineInput::escape() {
  if (next_byte() != '[') return;
  std::string number;
  for (int c = next_byte(); c >= 0; c = next_byte()) {
    if (c >= 0x40 && c <= 0x7e) {
      if (c == '~' && number == "200") pasting_ = true;
      if (c == '~' && number == "201") pasting_ = false;
      return;
    }
    number += static_cast<char>(c);
  }
}

LineInput::Got LineInput::edit(const std::string& prompt, std::string& line) {
  TypedBytes typed(fd_);
  std::printf("%s", prompt.c_str());
  for (;;) {
    // Typed ahead or pasted: draw when all that is there was taken.
    if (at_ == buffer_.size()) std::fflush(stdout);
    int c = next_byte();
    bool end = c == -1 || (c == 4 && line.empty());
    if (c == '\r') c = '\n';
    if (end || (c == '\n' && !pasting_)) {
      std::fputs("\n", stdout);
      return end ? Got::kEnd : Got::kLine;
    }
    if (c == -2) {
      std::fputs("\n", stdout);
      return Got::kInterrupt;
    }
    if (c == 0x1b) {
      escape();
    } else if (c == 0x7f || c == 8) {
      if (!line.empty()) erase(prompt, line, last_character(line));
    } else if (c == 0x17) {  // Ctrl-W
      erase(prompt, line, last_word(line));
    } else if (c == 0x15) {  // Ctrl-U
      erase(prompt, line, 0);
    } else if (c >= 0x20 || c == '\n' || c == '\t') {
      line += static_cast<char>(c);
      std::putchar(c);
    }
  }
}

}  // namespace hadal
