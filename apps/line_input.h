// Lines from the person at the terminal, or from a pipe. On a terminal the line may be of any
// length (the system's own line mode cuts at 4,095 bytes), is edited by characters, and a pasted
// text of several lines is one line.
#pragma once

#include <string>

namespace hadal {

class LineInput {
 public:
  explicit LineInput(int fd);

  enum class Got { kLine, kEnd, kInterrupt };
  // Shows `prompt` on a terminal and reads up to the next newline, which is left out. The last line
  // of a pipe needs no newline. kInterrupt: a signal came; `line` holds what was typed before it.
  Got read(const std::string& prompt, std::string& line);
  bool terminal() const { return terminal_; }

 private:
  int next_byte();  // -1 at the end, -2 when a signal came
  Got read_pipe(std::string& line);
  Got edit(const std::string& prompt, std::string& line);
  void escape();
  void erase(const std::string& prompt, std::string& line, size_t keep);

  int fd_;
  bool terminal_, pasting_ = false;
  std::string buffer_;
  size_t at_ = 0;
};

}  // namespace hadal
