// What a Tokenizer looks things up in: filled by tokenizer_json.cpp, read by tokenizer.cpp.
// Internal.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/regex.h"
#include "text/tokenizer.h"

namespace hadal {

// Open-addressing map from a pair of non-negative integers to a pair of integers.
class PairTable {
 public:
  struct Slot {
    uint64_t key = kEmpty;
    int32_t first = 0;
    int32_t second = 0;
  };

  // The slot of (a, b), and whether it is new; a slot that was there keeps its values.
  std::pair<Slot*, bool> insert(int32_t a, int32_t b, int32_t first, int32_t second) {
    if (2 * (used_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[index(key_of(a, b))];
    if (slot.key != kEmpty) return {&slot, false};
    slot = Slot{key_of(a, b), first, second};
    ++used_;
    return {&slot, true};
  }
  const Slot* find(int32_t a, int32_t b) const {
    const Slot& slot = slots_[index(key_of(a, b))];
    return slot.key == kEmpty ? nullptr : &slot;
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};

  static uint64_t key_of(int32_t a, int32_t b) {
    return uint64_t{static_cast<uint32_t>(a)} << 32 | static_cast<uint32_t>(b);
  }
  // Where the key is, or the empty slot where it would go.
  size_t index(uint64_t key) const {
    const uint64_t mixed = (key ^ key >> 32) * 0x9E3779B97F4A7C15u;
    size_t i = mixed >> 32 & (slots_.size() - 1);
    while (slots_[i].key != kEmpty && slots_[i].key != key) i = (i + 1) & (slots_.size() - 1);
    return i;
  }
  void grow() {
    std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(2 * slots_.size()));
    for (const Slot& slot : old) {
      if (slot.key != kEmpty) slots_[index(slot.key)] = slot;
    }
  }

  std::vector<Slot> slots_ = std::vector<Slot>(64);
  size_t used_ = 0;
};

// Strings to ids, searched leftmost first and longest among those, as Python tokenizers does.
class AddedTrie {
 public:
  struct Match {
    size_t begin;
    size_t end;
    int32_t id;
  };

  // `content` is not empty.
  void insert(std::string_view content, int32_t id) {
    int32_t node = 0;
    PairTable::Slot* edge = nullptr;
    for (const char c : content) {
      const auto [slot, fresh] = edges_.insert(node, static_cast<unsigned char>(c), nodes_, -1);
      nodes_ += fresh ? 1 : 0;
      node = slot->first;
      edge = slot;
    }
    edge->second = id;
  }

  std::optional<Match> find(std::string_view text, size_t from) const {
    for (size_t begin = from; begin < text.size(); ++begin) {
      Match longest{begin, begin, -1};
      int32_t node = 0;
      for (size_t at = begin; at < text.size(); ++at) {
        const auto* edge = edges_.find(node, static_cast<unsigned char>(text[at]));
        if (edge == nullptr) break;
        node = edge->first;
        if (edge->second >= 0) longest = Match{begin, at + 1, edge->second};
      }
      if (longest.id >= 0) return longest;
    }
    return std::nullopt;
  }

 private:
  PairTable edges_;  // (node, byte) -> (next node, id that ends there or -1); node 0 is the root
  int32_t nodes_ = 1;
};

struct Tokenizer::Tables {
  struct Token {
    std::string bytes;
    bool present = false;
    bool added = false;
    bool special = false;
  };
  std::vector<Token> tokens;                          // by id
  std::unordered_map<std::string_view, int32_t> ids;  // by bytes, which `tokens` owns
  std::array<int32_t, 256> byte_ids;
  PairTable merges;  // (left id, right id) -> (rank, id of both)
  std::vector<Regex> splits;
  AddedTrie added;             // normalized: false, matched first
  AddedTrie added_normalized;  // normalized: true, matched in what is left

  // Appends the added tokens in text[from, end), in order.
  void find_added(std::string_view text, size_t from, std::vector<AddedTrie::Match>& out) const {
    while (true) {
      const auto match = added.find(text, from);
      const std::string_view gap = text.substr(0, match ? match->begin : text.size());
      while (const auto inner = added_normalized.find(gap, from)) {
        out.push_back(*inner);
        from = inner->end;
      }
      if (!match) return;
      out.push_back(*match);
      from = match->end;
    }
  }
};

}  // namespace hadal
