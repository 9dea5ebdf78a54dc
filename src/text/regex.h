// One split pattern of a tokenizer.json, compiled so that it matches what Oniguruma (the engine of
// Python `tokenizers`, Unicode 16) matches. PCRE2 does the matching; its Unicode tables may be
// older, so \p{..} and \s are spelled out with the code points that Oniguruma knows in addition.
// Only the syntax that both engines read alike is accepted.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hadal {

// Working memory of find(): one per thread that matches, reused between calls and patterns.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class Regex;
  struct State;
  std::unique_ptr<State> state_;
};

// Immutable after compile(): any number of threads may match with it, each with its own scratch.
class Regex {
 public:
  struct Match {
    size_t begin;  // byte offsets into the text, begin < end
    size_t end;
  };

  // Accepted: literals, classes without sets inside, \p{L|M|N|P|S|Z}, \P outside classes, \s, \S,
  // \r \n \t, escaped punctuation, groups ( (?: (?= (?! , alternation, * + ? with ? or + behind,
  // {n} {n,} {n,m}. The error is the reason alone, without file or field: the caller names those.
  static Result<Regex> compile(const std::string& pattern);

  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // The first match that starts at or after `from`. `text` must be valid UTF-8 and `from` the
  // start of a character; lookahead sees the end of `text` as the end of the world. A text on which
  // the engine gives up (its limits grow with the text) counts as having no further match, so that
  // the caller keeps the rest in one piece instead of losing it.
  std::optional<Match> find(std::string_view text, size_t from, RegexScratch& scratch) const;

 private:
  struct Code;
  explicit Regex(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

}  // namespace hadal
