// Printing an answer while it streams.
#include "answer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace hadal {

AnswerPrinter::AnswerPrinter(const Tokenizer& tokenizer, bool opens_reasoning,
                             std::vector<std::string> stops)
    : tokenizer_(tokenizer),
      stop_list_(std::move(stops)),
      stops_(stop_list_),
      detokenizer_(tokenizer, /*skip_special=*/true),
      think_end_(tokenizer.id_of("</think>")),
      in_reasoning_(opens_reasoning),
      terminal_(isatty(STDOUT_FILENO) == 1) {}

void AnswerPrinter::close_reasoning() {
  std::fputs(terminal_ ? "\033[0m\n" : "</think>", stdout);
  in_reasoning_ = false;
}

void AnswerPrinter::print(const std::string& piece) {
  std::fwrite(piece.data(), 1, piece.size(), stdout);
  std::fflush(stdout);
  (in_reasoning_ ? reasoning_ : text_) += piece;
}

bool AnswerPrinter::push(int32_t id) {
  if (in_reasoning_ && !opened_) std::fputs(terminal_ ? "\033[2m" : "<think>", stdout);
  opened_ = true;
  if (in_reasoning_ && id == think_end_) {
    print(stops_.feed(detokenizer_.finish()));
    if (stops_.stopped()) return false;
    print(stops_.flush());
    close_reasoning();
    stops_ = StopStrings(stop_list_);
    return true;
  }
  print(stops_.feed(detokenizer_.push(id)));
  return !stops_.stopped();
}

void AnswerPrinter::finish() {
  print(stops_.feed(detokenizer_.finish()));
  if (!stops_.stopped()) print(stops_.flush());
  if (in_reasoning_ && opened_ && terminal_) std::fputs("\033[0m", stdout);
  const std::string& shown = in_reasoning_ ? reasoning_ : text_;
  if (shown.empty() || shown.back() != '\n') std::fputc('\n', stdout);
  std::fflush(stdout);
}

std::string closing_line(const Generation& g, bool stop_string) {
  int64_t read = g.prompt_tokens - g.cached_tokens, made = static_cast<int64_t>(g.ids.size());
  auto rate = [](int64_t n, double s) { return s > 0 ? static_cast<double>(n) / s : 0.0; };
  const char* reason = "";
  switch (g.reason) {
    case FinishReason::kStop:
      reason = "ended by the model";
      break;
    case FinishReason::kLength:
      reason = "cut at --max-tokens";
      break;
    case FinishReason::kContext:
      reason = "cut at the end of the context";
      break;
    case FinishReason::kCancelled:
      reason = stop_string ? "ended at a stop text" : "interrupted";
      break;
  }
  std::string cached = g.cached_tokens ? fmt::format("{} cached, ", g.cached_tokens) : "";
  // The first token comes out of the prefill, so one step fewer than tokens was run.
  return fmt::format("{} prompt tokens ({}{:.1f} tokens/s), {} generated ({:.1f} tokens/s), {}",
                     g.prompt_tokens, cached, rate(read, g.prefill_seconds), made,
                     rate(made - 1, g.decode_seconds), reason);
}

}  // namespace hadal
