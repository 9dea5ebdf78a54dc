// See tokenizer.h. Text to ids: added tokens, stray bytes, splits, words, merges.
#include "text/tokenizer.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <functional>

#include "text/detokenizer.h"
#include "text/tokenizer_tables.h"

namespace hadal {
namespace {

constexpr size_t kMaxTextBytes = 1u << 31;  // positions in a word are 32-bit
constexpr size_t kCachedWordBytes = 64;     // longer words hardly ever repeat

// Bytes of the character at the start of `text`, or 0 where those bytes are no character.
size_t character_bytes(std::string_view text) {
  if (static_cast<unsigned char>(text[0]) < 0x80) return 1;
  utf8proc_int32_t c = -1;
  const auto size = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                     static_cast<utf8proc_ssize_t>(text.size()), &c);
  return size > 0 ? static_cast<size_t>(size) : 0;
}

}  // namespace

// One text on its way to ids: pieces, words, merges. Holds the working memory of one encode().
class Tokenizer::Encoder {
 public:
  Encoder(const Tables& tables, std::vector<int32_t>& out) : tables_(tables), out_(out) {}

  // Appends the ids of text that holds no added tokens.
  void run(std::string_view text) {
    size_t begin = 0;
    bool valid = true;  // whether text[begin, at) is characters or stray bytes
    for (size_t at = 0; at < text.size();) {
      const size_t size = character_bytes(text.substr(at));
      if ((size > 0) != valid) {
        flush(text.substr(begin, at - begin), valid);
        begin = at;
        valid = !valid;
      }
      at += std::max<size_t>(size, 1);
    }
    flush(text.substr(begin), valid);
  }

 private:
  void flush(std::string_view piece, bool valid) {
    if (valid) {
      split(0, piece);
    } else {
      word(piece);
    }
  }

  // Each split works inside the pieces of the one before it; matches and gaps both go on.
  void split(size_t level, std::string_view piece) {
    if (piece.empty()) return;
    if (level == tables_.splits.size()) return word(piece);
    size_t at = 0;
    while (at < piece.size()) {
      const auto match = tables_.splits[level].find(piece, at, scratch_);
      const size_t begin = match ? match->begin : piece.size();
      split(level + 1, piece.substr(at, begin - at));
      if (!match) return;
      split(level + 1, piece.substr(match->begin, match->end - match->begin));
      at = match->end;
    }
  }

  void word(std::string_view bytes) {
    if (bytes.size() > kCachedWordBytes) return merge(bytes);
    const auto [it, fresh] = cache_.try_emplace(bytes);
    Span& span = it->second;
    if (fresh) {
      span.begin = out_.size();
      merge(bytes);
      span.count = out_.size() - span.begin;
      return;
    }
    for (size_t i = 0; i < span.count; ++i) {
      const int32_t id = out_[span.begin + i];
      out_.push_back(id);
    }
  }

  // Applies the merge of lowest rank, leftmost first, until none applies. A heap of candidates over
  // a linked list of symbols: n log n for a word of any length.
  void merge(std::string_view word) {
    const auto size = static_cast<uint32_t>(word.size());
    symbols_.resize(size);
    for (uint32_t i = 0; i < size; ++i) {
      const auto byte = static_cast<unsigned char>(word[i]);
      symbols_[i] = Symbol{tables_.byte_ids[byte], i - 1, i + 1};
    }
    candidates_.clear();
    for (uint32_t i = 0; i + 1 < size; ++i) propose(i, i + 1);
    std::make_heap(candidates_.begin(), candidates_.end(), std::greater<>());
    while (!candidates_.empty()) {
      std::pop_heap(candidates_.begin(), candidates_.end(), std::greater<>());
      const Candidate best = candidates_.back();
      candidates_.pop_back();
      const auto at = static_cast<uint32_t>(best.order);
      Symbol& left = symbols_[at];
      const uint32_t next = left.next;
      // Either side may have been merged away since this was proposed.
      if (left.id != best.left || next >= size || symbols_[next].id != best.right) continue;
      left.id = best.merged;
      left.next = symbols_[next].next;
      symbols_[next].id = -1;
      if (left.next < size) symbols_[left.next].previous = at;
      if (at > 0 && propose(left.previous, at)) push_up();
      if (left.next < size && propose(at, left.next)) push_up();
    }
    for (uint32_t i = 0; i < size; i = symbols_[i].next) out_.push_back(symbols_[i].id);
  }

  bool propose(uint32_t left, uint32_t right) {
    const int32_t a = symbols_[left].id;
    const int32_t b = symbols_[right].id;
    const auto* rule = tables_.merges.find(a, b);
    if (rule == nullptr) return false;
    const uint64_t order = uint64_t{static_cast<uint32_t>(rule->first)} << 32 | left;
    candidates_.push_back(Candidate{order, a, b, rule->second});
    return true;
  }
  void push_up() { std::push_heap(candidates_.begin(), candidates_.end(), std::greater<>()); }

  struct Span {
    size_t begin = 0;
    size_t count = 0;
  };
  struct Symbol {
    int32_t id;         // -1 once merged into the symbol before it
    uint32_t previous;  // meaningless for the first symbol
    uint32_t next;      // the length of the word for the last symbol
  };
  struct Candidate {
    uint64_t order;  // rank, then position of the left symbol
    int32_t left;
    int32_t right;
    int32_t merged;
    bool operator>(const Candidate& other) const { return order > other.order; }
  };

  const Tables& tables_;
  std::vector<int32_t>& out_;
  RegexScratch scratch_;
  std::unordered_map<std::string_view, Span> cache_;  // words of this text, with their ids in out_
  std::vector<Symbol> symbols_;
  std::vector<Candidate> candidates_;
};

Tokenizer::Tokenizer(std::unique_ptr<const Tables> tables) : tables_(std::move(tables)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

std::vector<int32_t> Tokenizer::encode(std::string_view text, SpecialTokens mode) const {
  const TextPart part{text, mode};
  return encode(std::span(&part, 1));
}

std::vector<int32_t> Tokenizer::encode(std::span<const TextPart> parts) const {
  std::string joined;
  std::string_view text;
  if (parts.size() == 1) {
    text = parts[0].text;
  } else {
    for (const TextPart& part : parts) joined += part.text;
    text = joined;
  }
  HADAL_CHECK(text.size() < kMaxTextBytes, fmt::format("a text of {} bytes", text.size()));

  std::vector<AddedTrie::Match> found;
  size_t begin = 0;
  for (size_t i = 0; i < parts.size();) {
    const SpecialTokens mode = parts[i].mode;
    size_t end = begin;
    for (; i < parts.size() && parts[i].mode == mode; ++i) end += parts[i].text.size();
    if (mode == SpecialTokens::kParse) tables_->find_added(text.substr(0, end), begin, found);
    begin = end;
  }

  std::vector<int32_t> ids;
  Encoder encoder(*tables_, ids);
  size_t at = 0;
  for (const AddedTrie::Match& match : found) {
    encoder.run(text.substr(at, match.begin - at));
    ids.push_back(match.id);
    at = match.end;
  }
  encoder.run(text.substr(at));
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  Detokenizer detokenizer(*this, skip_special);
  std::string text;
  for (const int32_t id : ids) text += detokenizer.push(id);
  return text + detokenizer.finish();
}

const std::string& Tokenizer::token_bytes(int32_t id) const {
  static const std::string kNone;
  return id >= 0 && id < vocab_size() ? tables_->tokens[static_cast<size_t>(id)].bytes : kNone;
}

std::optional<int32_t> Tokenizer::id_of(std::string_view token) const {
  const auto it = tables_->ids.find(token);
  if (it == tables_->ids.end()) return std::nullopt;
  return it->second;
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < vocab_size() && tables_->tokens[static_cast<size_t>(id)].special;
}

int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(tables_->tokens.size()); }

}  // namespace hadal
