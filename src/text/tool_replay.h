// The model's own bytes of past tool calls. Clients send calls back as JSON, laid out anew; what
// the model wrote may differ in white space and order, and then nothing behind it could be reused.
// Where a conversation holds calls that were answered here, their text takes the place of the
// rendering.
#pragma once

#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/chat.h"

namespace hadal {

class ToolReplay {
 public:
  // Forgets what was unused for longest when the texts exceed `max_bytes`.
  explicit ToolReplay(size_t max_bytes) : max_bytes_(max_bytes) {}

  // The calls of one answer, with unique ids, and the text that StreamParser::calls_text has.
  void remember(std::vector<ToolCall> calls, std::string text);
  // Sets tool_calls_text of the assistant messages whose calls are those of one answer: the same
  // ids and names, and arguments that are equal as JSON (the order of keys does not count).
  void restore(Conversation& conversation);

 private:
  struct Entry {
    std::vector<ToolCall> calls;
    std::string text;
    size_t bytes() const { return text.size() * 2 + 200 * calls.size(); }
  };
  size_t max_bytes_, bytes_ = 0;
  std::list<Entry> entries_;                                           // the newest first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_id_;  // of the first call
};

// Whether two texts are equal as JSON values. Texts that are no JSON are compared as they are.
bool same_json(const std::string& a, const std::string& b);

}  // namespace hadal
