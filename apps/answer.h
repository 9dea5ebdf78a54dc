// A model's answer as it streams: tokens to text, reasoning told from answer, stop strings, and the
// line that closes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hadal.h"
#include "text/detokenizer.h"
#include "text/stop_strings.h"
#include "text/tokenizer.h"

namespace hadal {

// Prints to standard output. Reasoning is dim on a terminal, and stands between <think> and
// </think> where standard output is none.
class AnswerPrinter {
 public:
  // `opens_reasoning`: the prompt ended inside <think>. `tokenizer` must outlive this.
  AnswerPrinter(const Tokenizer& tokenizer, bool opens_reasoning, std::vector<std::string> stops);

  // Prints what became certain. False once a stop string ended the answer.
  bool push(int32_t id);
  // Prints the rest, and a newline where the text has none at its end.
  void finish();

  const std::string& reasoning() const { return reasoning_; }
  const std::string& text() const { return text_; }
  bool stopped() const { return stops_.stopped(); }

 private:
  void close_reasoning();
  void print(const std::string& piece);

  const Tokenizer& tokenizer_;
  std::vector<std::string> stop_list_;
  StopStrings stops_;
  Detokenizer detokenizer_;
  std::optional<int32_t> think_end_;
  bool in_reasoning_, terminal_, opened_ = false;
  std::string reasoning_, text_;
};

// "34 prompt tokens (12 cached, 810.2/s), 29 generated (95.1/s), stopped at the end token".
std::string closing_line(const Generation& generation, bool stop_string);

}  // namespace hadal
