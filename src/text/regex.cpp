// See regex.h. Translation of the pattern first, matching with PCRE2 second.
#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <cctype>
#include <utility>

namespace hadal {
namespace {

// Code points that Unicode 15, 15.1 and 16 put into a general category: unassigned for PCRE2 10.42
// (Unicode 14), assigned for the Oniguruma inside Python tokenizers. No code point left a category
// between those versions, so that adding these ranges makes the two equal, and changes nothing for
// a PCRE2 that knows them.
constexpr const char* kNewLetters =
    R"(\x{1C89}-\x{1C8A}\x{A7CB}-\x{A7CD}\x{A7DA}-\x{A7DC}\x{105C0}-\x{105F3})"
    R"(\x{10D4A}-\x{10D65}\x{10D6F}-\x{10D85}\x{10EC2}-\x{10EC4}\x{1123F}-\x{11240})"
    R"(\x{11380}-\x{11389}\x{1138B}\x{1138E}\x{11390}-\x{113B5}\x{113B7}\x{113D1}\x{113D3})"
    R"(\x{11BC0}-\x{11BE0}\x{11F02}\x{11F04}-\x{11F10}\x{11F12}-\x{11F33}\x{1342F})"
    R"(\x{13441}-\x{13446}\x{13460}-\x{143FA}\x{16100}-\x{1611D}\x{16D40}-\x{16D6C})"
    R"(\x{18CFF}\x{1B132}\x{1B155}\x{1DF25}-\x{1DF2A}\x{1E030}-\x{1E06D}\x{1E4D0}-\x{1E4EB})"
    R"(\x{1E5D0}-\x{1E5ED}\x{1E5F0}\x{2B739}\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})";
constexpr const char* kNewMarks =
    R"(\x{897}\x{CF3}\x{ECE}\x{10D69}-\x{10D6D}\x{10EFC}-\x{10EFF}\x{11241})"
    R"(\x{113B8}-\x{113C0}\x{113C2}\x{113C5}\x{113C7}-\x{113CA}\x{113CC}-\x{113D0}\x{113D2})"
    R"(\x{113E1}-\x{113E2}\x{11F00}-\x{11F01}\x{11F03}\x{11F34}-\x{11F3A})"
    R"(\x{11F3E}-\x{11F42}\x{11F5A}\x{13440}\x{13447}-\x{13455}\x{1611E}-\x{1612F}\x{1E08F})"
    R"(\x{1E4EC}-\x{1E4EF}\x{1E5EE}-\x{1E5EF})";
constexpr const char* kNewNumbers =
    R"(\x{10D40}-\x{10D49}\x{116D0}-\x{116E3}\x{11BF0}-\x{11BF9}\x{11F50}-\x{11F59})"
    R"(\x{16130}-\x{16139}\x{16D70}-\x{16D79}\x{1CCF0}-\x{1CCF9}\x{1D2C0}-\x{1D2D3})"
    R"(\x{1E4F0}-\x{1E4F9}\x{1E5F1}-\x{1E5FA})";
constexpr const char* kNewPunctuation =
    R"(\x{1B4E}-\x{1B4F}\x{1B7F}\x{10D6E}\x{113D4}-\x{113D5}\x{113D7}-\x{113D8})"
    R"(\x{11B00}-\x{11B09}\x{11BE1}\x{11F43}-\x{11F4F}\x{16D6D}-\x{16D6F}\x{1E5FF})";
constexpr const char* kNewSymbols =
    R"(\x{2427}-\x{2429}\x{2FFC}-\x{2FFF}\x{31E4}-\x{31E5}\x{31EF}\x{10D8E}-\x{10D8F})"
    R"(\x{1CC00}-\x{1CCEF}\x{1CD00}-\x{1CEB3}\x{1F6DC}\x{1F774}-\x{1F776})"
    R"(\x{1F77B}-\x{1F77F}\x{1F7D9}\x{1F8B2}-\x{1F8BB}\x{1F8C0}-\x{1F8C1})"
    R"(\x{1FA75}-\x{1FA77}\x{1FA87}-\x{1FA89}\x{1FA8F}\x{1FAAD}-\x{1FAAF})"
    R"(\x{1FABB}-\x{1FABF}\x{1FAC6}\x{1FACE}-\x{1FACF}\x{1FADA}-\x{1FADC}\x{1FADF})"
    R"(\x{1FAE8}-\x{1FAE9}\x{1FAF7}-\x{1FAF8}\x{1FBCB}-\x{1FBEF})";

// Oniguruma's \s. PCRE2's own would, with Unicode properties, also take U+180E.
constexpr const char* kSpace = R"(\x{9}-\x{D}\x{85}\p{Z})";

// The most that the interpreter may use for its backtracking points.
constexpr uint32_t kHeapKib = 64 * 1024;

// What stands for \p{name} inside a class, or nullptr.
const char* property_suffix(std::string_view name) {
  if (name == "L") return kNewLetters;
  if (name == "M") return kNewMarks;
  if (name == "N") return kNewNumbers;
  if (name == "P") return kNewPunctuation;
  if (name == "S") return kNewSymbols;
  if (name == "Z") return "";
  return nullptr;
}

// Rewrites a pattern of Oniguruma's syntax for PCRE2, or says what it cannot read.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  Result<std::string> run() {
    while (at_ < in_.size()) {
      HADAL_TRY_STATUS(item());
    }
    return std::move(out_);
  }

 private:
  Error refuse(std::string_view what) const {
    return Error{fmt::format("{} (byte {} of the pattern) is not supported", what, at_)};
  }
  char peek(size_t ahead) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }

  Status item() {
    switch (in_[at_]) {
      case '\\':
        return escape(false);
      case '[':
        return char_class();
      case '(':
        return group();
      case '{':
        return braces();
      case '*':
      case '+':
      case '?':
        return repeat();
      case '^':
      case '$':
      case '.':
        return refuse(fmt::format("'{}' outside a character class", in_[at_]));
      default:
        out_ += in_[at_++];
        return {};
    }
  }

  Status escape(bool in_class) {
    const char c = peek(1);
    if (c == 'p' || c == 'P') return property(in_class);
    if (c == 's' || c == 'S') {
      if (in_class && c == 'S') return refuse("\\S inside a character class");
      out_ += in_class ? kSpace : fmt::format("[{}{}]", c == 'S' ? "^" : "", kSpace);
    } else if (!in_class && (c == '`' || c == '\'')) {
      return refuse("an anchor");
    } else if (c == 'r' || c == 'n' || c == 't' || std::ispunct(static_cast<unsigned char>(c))) {
      out_ += '\\';
      out_ += c;
    } else {
      return refuse("this escape");
    }
    at_ += 2;
    return {};
  }

  Status property(bool in_class) {
    const bool negated = in_[at_ + 1] == 'P';
    const size_t close = in_.find('}', at_);
    if (peek(2) != '{' || close == std::string_view::npos) return refuse("\\p without {name}");
    const std::string_view name = in_.substr(at_ + 3, close - at_ - 3);
    const char* suffix = property_suffix(name);
    if (suffix == nullptr) return refuse(fmt::format("the property \\p{{{}}}", name));
    if (negated && in_class) return refuse("\\P inside a character class");
    const std::string members = fmt::format("\\p{{{}}}{}", name, suffix);
    out_ += in_class ? members : fmt::format("[{}{}]", negated ? "^" : "", members);
    at_ = close + 1;
    return {};
  }

  Status char_class() {
    out_ += in_[at_++];
    if (peek(0) == '^') out_ += in_[at_++];
    if (peek(0) == ']') return refuse("']' as the first member of a character class");
    bool after_set = false;  // the last member was \p{..} or \s, which no range can start from
    while (at_ < in_.size() && in_[at_] != ']') {
      const char c = in_[at_];
      const bool set = c == '\\' && std::isalpha(static_cast<unsigned char>(peek(1))) &&
                       std::string_view("rnt").find(peek(1)) == std::string_view::npos;
      if (c == '[') return refuse("a set inside a character class");
      if (c == '&' && peek(1) == '&') return refuse("'&&' inside a character class");
      if (c == '-' && peek(1) != ']') {
        const bool before_set =
            peek(1) == '\\' && std::string_view("pPsS").find(peek(2)) != std::string_view::npos;
        if (after_set || before_set) return refuse("a range that touches a set");
      }
      if (c == '\\') {
        HADAL_TRY_STATUS(escape(true));
      } else {
        out_ += c;
        ++at_;
      }
      after_set = set;
    }
    if (at_ == in_.size()) return refuse("a character class without its ']'");
    out_ += in_[at_++];
    return {};
  }

  Status group() {
    if (peek(1) == '*') return refuse("'(*'");
    if (peek(1) == '?' && std::string_view(":=!").find(peek(2)) == std::string_view::npos)
      return refuse(fmt::format("the group '(?{}'", peek(2)));
    const size_t length = peek(1) == '?' ? 3 : 1;
    out_ += in_.substr(at_, length);
    at_ += length;
    return {};
  }

  Status repeat() {
    out_ += in_[at_++];
    if (peek(0) == '?' || peek(0) == '+') out_ += in_[at_++];
    return {};
  }

  Status braces() {
    size_t end = at_ + 1;
    size_t digits = 0;
    size_t commas = 0;
    for (; end < in_.size() && in_[end] != '}'; ++end) {
      const bool comma = in_[end] == ',' && digits > 0 && commas == 0;
      if (!comma && std::isdigit(static_cast<unsigned char>(in_[end])) == 0) break;
      (comma ? commas : digits) += 1;
    }
    if (end >= in_.size() || in_[end] != '}' || digits == 0) return refuse("this '{'");
    if (digits > 4) return refuse("a repeat count of more than two digits");
    const char behind = end + 1 < in_.size() ? in_[end + 1] : '\0';
    if (std::string_view("?+*{").find(behind) != std::string_view::npos && behind != '\0')
      return refuse("a quantifier behind '{..}'");
    out_ += in_.substr(at_, end + 1 - at_);
    at_ = end + 1;
    return {};
  }

  std::string_view in_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

struct RegexScratch::State {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  ~State() {
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

RegexScratch::RegexScratch() : state_(std::make_unique<State>()) {
  HADAL_CHECK(state_->data != nullptr && state_->context != nullptr, "out of memory");
}
RegexScratch::~RegexScratch() = default;

struct Regex::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

Result<Regex> Regex::compile(const std::string& pattern) {
  HADAL_TRY(const std::string translated, Translator(pattern).run());
  int code = 0;
  PCRE2_SIZE offset = 0;
  auto compiled = std::make_unique<Code>();
  compiled->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                 PCRE2_UTF, &code, &offset, nullptr);
  if (compiled->code == nullptr) {
    PCRE2_UCHAR reason[256] = {};
    pcre2_get_error_message(code, reason, sizeof(reason));
    return Error{fmt::format("PCRE2 cannot compile it: {}", reinterpret_cast<char*>(reason))};
  }
  uint32_t matches_empty = 0;
  pcre2_pattern_info(compiled->code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) return Error{"it can match an empty string"};
  // Where this machine forbids generated code, the interpreter does the same work, slower.
  (void)pcre2_jit_compile(compiled->code, PCRE2_JIT_COMPLETE);
  return Regex(std::move(compiled));
}

std::optional<Regex::Match> Regex::find(std::string_view text, size_t from,
                                        RegexScratch& scratch) const {
  RegexScratch::State& state = *scratch.state_;
  // A run of n blanks costs about n steps per alternative: a limit that grows with the text lets
  // every such run through and still stops a pattern that explodes.
  const size_t steps = std::min<size_t>(10'000'000 + 64 * text.size(), UINT32_MAX);
  pcre2_set_match_limit(state.context, static_cast<uint32_t>(steps));
  pcre2_set_heap_limit(state.context, kHeapKib);
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  uint32_t options = PCRE2_NO_UTF_CHECK;
  int rc = pcre2_match(code_->code, subject, text.size(), from, options, state.data, state.context);
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
    // The interpreter keeps its state on the heap and needs no such stack.
    options |= PCRE2_NO_JIT;
    rc = pcre2_match(code_->code, subject, text.size(), from, options, state.data, state.context);
  }
  if (rc < 0) return std::nullopt;
  const PCRE2_SIZE* span = pcre2_get_ovector_pointer(state.data);
  if (span[0] < from || span[0] >= span[1]) return std::nullopt;
  return Match{span[0], span[1]};
}

}  // namespace hadal
