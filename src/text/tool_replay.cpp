// Remembering calls, and knowing them again.
#include "text/tool_replay.h"

#include <algorithm>
#include <utility>

#include "text/json_text.h"

namespace hadal {
namespace {

bool equal(const JsonValue& a, const JsonValue& b) {
  if (a.kind != b.kind || a.text != b.text || a.members.size() != b.members.size()) return false;
  for (size_t i = 0; i < a.members.size(); ++i) {
    const JsonMember& m = a.members[i];
    if (a.kind == JsonValue::Kind::kArray) {
      if (!equal(m.value, b.members[i].value)) return false;
      continue;
    }
    auto same = std::ranges::find(b.members, m.key, &JsonMember::key);
    if (same == b.members.end() || !equal(m.value, same->value)) return false;
  }
  return true;
}

}  // namespace

bool same_json(const std::string& a, const std::string& b) {
  if (a == b) return true;
  auto left = parse_json(a, ""), right = parse_json(b, "");
  return left.ok() && right.ok() && equal(left.value(), right.value());
}

void ToolReplay::remember(std::vector<ToolCall> calls, std::string text) {
  if (calls.empty() || text.empty() || by_id_.contains(calls[0].id)) return;
  entries_.push_front({std::move(calls), std::move(text)});
  by_id_[entries_.front().calls[0].id] = entries_.begin();
  bytes_ += entries_.front().bytes();
  while (bytes_ > max_bytes_) {
    bytes_ -= entries_.back().bytes();
    by_id_.erase(entries_.back().calls[0].id);
    entries_.pop_back();
  }
}

void ToolReplay::restore(Conversation& conversation) {
  for (Message& m : conversation.messages) {
    if (m.role != Role::kAssistant || m.tool_calls.empty()) continue;
    auto found = by_id_.find(m.tool_calls[0].id);
    if (found == by_id_.end()) continue;
    const Entry& entry = *found->second;
    bool same = std::ranges::equal(m.tool_calls, entry.calls, [](const auto& a, const auto& b) {
      return a.id == b.id && a.name == b.name && same_json(a.arguments, b.arguments);
    });
    if (!same) continue;
    m.tool_calls_text = entry.text;
    entries_.splice(entries_.begin(), entries_, found->second);
  }
}

}  // namespace hadal
