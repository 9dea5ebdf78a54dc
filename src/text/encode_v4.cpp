// V4, preview and 0731/0813: spec V4 section 8.2. Messages become turns first: tool results are
// blocks of user turns. `u` below is the last user or developer turn.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "text/chat_encoders.h"

namespace hadal {
namespace {

struct Block {
  bool result = false;  // a tool's result, else the user's text
  std::string text, call_id;
};

struct Turn {
  Role role;
  const Message* message;     // what is not below; the first message where several were merged
  std::string text;           // content, other than of user turns
  std::vector<Block> blocks;  // user turns
  std::string task;
};

constexpr std::pair<std::string_view, std::string_view> kTasks[] = {
    {"action", "<｜action｜>"}, {"query", "<｜query｜>"}, {"authority", "<｜authority｜>"},
    {"domain", "<｜domain｜>"}, {"title", "<｜title｜>"}, {"read_url", "<｜read_url｜>"},
};

std::string_view task_token(const std::string& task) {
  for (auto& [name, token] : kTasks) {
    if (task == name) return token;
  }
  return {};
}

std::string content_of(const Message& m) {
  std::string text;
  for (const ContentPart& part : m.content) {
    if (&part != &m.content.front()) text += "\n\n";
    text += part.type == "text" ? part.text : fmt::format("[Unsupported {}]", part.type);
  }
  return text;
}

// Step 1 of the spec. A task of a user message that joins an earlier one is lost, as there.
std::vector<Turn> merge_results(const std::vector<Message>& messages) {
  std::vector<Turn> turns;
  for (const Message& m : messages) {
    if (m.role != Role::kTool && m.role != Role::kUser) {
      turns.push_back({m.role, &m, content_of(m), {}, m.task});
      continue;
    }
    bool result = m.role == Role::kTool;
    bool joins =
        !turns.empty() && turns.back().role == Role::kUser && (result || turns.back().task.empty());
    if (!joins) turns.push_back({Role::kUser, &m, {}, {}, result ? std::string() : m.task});
    turns.back().blocks.push_back({result, content_of(m), m.tool_call_id});
  }
  return turns;
}

// Step 2: results in the order of the calls; the places of text blocks stay.
void sort_results(std::vector<Turn>& turns) {
  std::unordered_map<std::string_view, size_t> order;
  for (Turn& turn : turns) {
    if (turn.role == Role::kAssistant && !turn.message->tool_calls.empty()) {
      const auto& calls = turn.message->tool_calls;
      order.clear();
      for (size_t k = 0; k < calls.size(); ++k) order[calls[k].id] = k;
      order.erase("");
    }
    if (turn.role != Role::kUser || order.empty()) continue;
    std::vector<std::pair<size_t, Block>> results;
    for (const Block& b : turn.blocks) {
      auto place = order.find(b.call_id);
      if (b.result) results.emplace_back(place == order.end() ? 0 : place->second, b);
    }
    std::stable_sort(results.begin(), results.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    auto next = results.begin();
    for (Block& b : turn.blocks) {
      if (b.result) b = std::move((next++)->second);
    }
  }
}

int last_user_of(const std::vector<Turn>& turns) {
  for (int i = int(turns.size()) - 1; i >= 0; --i) {
    if (turns[i].role == Role::kUser || turns[i].role == Role::kDeveloper) return i;
  }
  return -1;
}

// Step 4; the reasoning of earlier turns is left out when they are rendered.
void drop_past_developers(std::vector<Turn>& turns) {
  auto end = turns.begin() + std::max(0, last_user_of(turns));
  turns.erase(
      std::remove_if(turns.begin(), end, [](const Turn& t) { return t.role == Role::kDeveloper; }),
      end);
}

class Encoder {
 public:
  explicit Encoder(const EncodeInput& in)
      : in_(in), thinking_(in.options.thinking), drop_(in.options.drop_thinking) {
    turns_ = merge_results(in.messages);
    sort_results(turns_);
    for (const Message& m : in.messages) drop_ = drop_ && m.tools.empty();
    if (thinking_ && drop_) drop_past_developers(turns_);
    user_ = last_user_of(turns_);
  }

  Result<Prompt> encode() {
    for (const Turn& turn : turns_) {
      if (!turn.task.empty() && task_token(turn.task).empty()) {
        return Error{
            fmt::format("unknown task \"{}\": use action, query, authority, domain, title "
                        "or read_url.",
                        turn.task)};
      }
    }
    prompt_.add_control(kBos);
    if (thinking_) add_effort();
    for (int i = 0; i < int(turns_.size()); ++i) {
      HADAL_TRY_STATUS(add_turn(i));
      add_transition(i);
    }
    return std::move(prompt_);
  }

 private:
  void add_effort() {
    const std::string& effort = in_.options.reasoning_effort;
    bool later = in_.options.format == ChatFormat::kV4_0731;
    const FixedText* text = nullptr;
    if (effort == "max") text = later ? &in_.strings.effort_b : &in_.strings.effort_a;
    if (effort == "high" && later) text = &in_.strings.effort_a;
    if (!text) return;
    add_fixed(text->head, &prompt_);
    prompt_.own_wording |= text->own;
  }

  Status add_turn(int i) {
    const Turn& turn = turns_[i];
    // A reminder stands between the header that opened the reasoning and the reasoning.
    if (turn.role != Role::kLatestReminder) prompt_.opens_reasoning = false;
    switch (turn.role) {
      case Role::kSystem:
        prompt_.add_text(turn.text);
        return add_tools_and_format(*turn.message, in_.strings, &prompt_);
      case Role::kDeveloper:
        if (turn.text.empty())
          return Error{"the content of a developer message must not be empty."};
        prompt_.add_control(kUser);
        prompt_.add_text(turn.text);
        return add_tools_and_format(*turn.message, in_.strings, &prompt_);
      case Role::kLatestReminder:
        prompt_.add_control(kReminder);
        prompt_.add_text(turn.text);
        return {};
      case Role::kAssistant:
        return add_assistant(i);
      default:
        break;
    }
    prompt_.add_control(kUser);
    for (size_t b = 0; b < turn.blocks.size(); ++b) {
      if (b > 0) prompt_.add_text("\n\n");
      const Block& block = turn.blocks[b];
      prompt_.add_text(block.result ? "<tool_result>" + block.text + "</tool_result>" : block.text);
    }
    return {};
  }

  Status add_assistant(int i) {
    const Turn& turn = turns_[i];
    bool answers_task = i > 0 && !turns_[i - 1].task.empty();
    if (thinking_ && !answers_task && (!drop_ || i > user_)) {
      prompt_.add_text(turn.message->reasoning);
      prompt_.add_control(kThinkEnd);
    }
    prompt_.add_text(turn.text);
    HADAL_TRY_STATUS(add_dsml_calls(*turn.message, "tool_calls", /*lenient=*/true, &prompt_));
    if (!turn.message->without_eos) prompt_.add_control(kEos);
    return {};
  }

  // What opens the next turn.
  void add_transition(int i) {
    const Turn& turn = turns_[i];
    bool last = i + 1 == int(turns_.size());
    if (!last && turns_[i + 1].role != Role::kAssistant &&
        turns_[i + 1].role != Role::kLatestReminder) {
      return;
    }
    if (last && !in_.options.add_generation_prompt) return;
    if (!turn.task.empty()) {
      if (turn.task == "action") {
        prompt_.add_control(kAssistant);
        prompt_.add_control(thinking_ ? kThink : kThinkEnd);
      }
      prompt_.add_control(task_token(turn.task));
    } else if (turn.role == Role::kUser || turn.role == Role::kDeveloper) {
      bool think = thinking_ && (!drop_ || i >= user_);
      prompt_.add_control(kAssistant);
      prompt_.add_control(think ? kThink : kThinkEnd);
      prompt_.opens_reasoning = think;
    }
  }

  const EncodeInput& in_;
  bool thinking_, drop_;
  std::vector<Turn> turns_;
  int user_ = -1;
  Prompt prompt_;
};

}  // namespace

Result<Prompt> encode_v4(const EncodeInput& in) { return Encoder(in).encode(); }

}  // namespace hadal
