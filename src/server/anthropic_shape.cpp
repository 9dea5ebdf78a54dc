// JSON and events of /v1/messages.
#include "server/anthropic_shape.h"

#include <nlohmann/json.hpp>

namespace hadal {
namespace {

using Json = nlohmann::ordered_json;
using Kind = StreamEvent::Kind;

// Clients send it back with the block and never look into it.
constexpr const char* kSignature = "hadal";

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}
std::string event(const std::string& type, Json data) {
  Json json = {{"type", type}};
  json.update(data);
  return "event: " + type + "\ndata: " + dumped(json) + "\n\n";
}

// input_tokens are those that no cache held.
Json usage_json(const Choice& c) {
  auto prompt = static_cast<int64_t>(c.prompt.size());
  return {{"input_tokens", prompt - c.cached},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", c.cached},
          {"output_tokens", c.tokens}};
}

const char* stop_reason(const Choice& c) {
  if (c.end->reason == FinishReason::kLength || c.end->reason == FinishReason::kContext)
    return "max_tokens";
  if (c.end->stop_string) return "stop_sequence";
  return c.calls.empty() ? "end_turn" : "tool_use";
}

Json stop_sequence(const Choice& c) {
  return c.end->stop_string ? Json(*c.end->stop_string) : Json(nullptr);
}

class MessageShape : public AnswerShape {
 public:
  explicit MessageShape(std::string model) : model_(std::move(model)), id_(random_id("msg_")) {}

  Dialect dialect() const override { return Dialect::kAnthropic; }

  std::string whole(const std::vector<Choice>& choices) override {
    const Choice& c = choices[0];
    Json json = message();
    if (!c.reasoning.empty()) {
      json["content"].push_back(
          {{"type", "thinking"}, {"thinking", c.reasoning}, {"signature", kSignature}});
    }
    if (!c.content.empty()) json["content"].push_back({{"type", "text"}, {"text", c.content}});
    for (const AnsweredCall& call : c.calls) {
      Json input = Json::parse(call.arguments, nullptr, false);
      if (!input.is_object()) input = Json::object();
      json["content"].push_back(
          {{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", input}});
    }
    json["stop_reason"] = stop_reason(c);
    json["stop_sequence"] = stop_sequence(c);
    json["usage"] = usage_json(c);
    return dumped(json);
  }

  std::string stream_piece(const std::vector<Choice>& choices, size_t,
                           const AnswerPiece& piece) override {
    const Choice& c = choices[0];
    std::string out;
    if (!std::exchange(begun_, true)) {
      Json start = message();
      start["stop_reason"] = nullptr;
      start["stop_sequence"] = nullptr;
      start["usage"] = usage_json(c);
      start["usage"]["output_tokens"] = 0;
      out += event("message_start", {{"message", std::move(start)}});
      out += event("ping", Json::object());
    }
    for (const StreamEvent& e : piece.events) out += block_event(c, e);
    return out;
  }

  std::string stream_end(const std::vector<Choice>& choices) override {
    const Choice& c = choices[0];
    std::string out = close_block();
    Json delta = {{"stop_reason", stop_reason(c)}, {"stop_sequence", stop_sequence(c)}};
    out += event("message_delta", {{"delta", std::move(delta)}, {"usage", usage_json(c)}});
    return out + event("message_stop", Json::object());
  }

  std::string stream_error(const ApiError& error) override {
    return "event: error\ndata: " + error_body(error, Dialect::kAnthropic) + "\n\n";
  }

 private:
  enum class Block { kNone, kThinking, kText, kCall };

  Json message() const {
    return {{"id", id_},
            {"type", "message"},
            {"role", "assistant"},
            {"content", Json::array()},
            {"model", model_}};
  }

  std::string block_event(const Choice& c, const StreamEvent& e) {
    std::string out;
    switch (e.kind) {
      // Opening comes first: it may close another block, and so move on the index.
      case Kind::kReasoning:
        out = open_block(Block::kThinking,
                         {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
        return out + delta({{"type", "thinking_delta"}, {"thinking", e.text}});
      case Kind::kContent:
        out = open_block(Block::kText, {{"type", "text"}, {"text", ""}});
        return out + delta({{"type", "text_delta"}, {"text", e.text}});
      case Kind::kCallBegin: {
        const AnsweredCall& call = c.calls[calls_++];
        out = close_block();
        return out + open_block(Block::kCall, {{"type", "tool_use"},
                                               {"id", call.id},
                                               {"name", call.name},
                                               {"input", Json::object()}});
      }
      case Kind::kCallArguments:
        return delta({{"type", "input_json_delta"}, {"partial_json", e.text}});
      case Kind::kCallEnd:
        return close_block();
    }
    return {};
  }

  std::string open_block(Block block, Json content) {
    if (block_ == block) return {};
    std::string out = close_block();
    block_ = block;
    return out +
           event("content_block_start", {{"index", index_}, {"content_block", std::move(content)}});
  }
  std::string close_block() {
    if (block_ == Block::kNone) return {};
    std::string out;
    if (block_ == Block::kThinking)
      out += delta({{"type", "signature_delta"}, {"signature", kSignature}});
    block_ = Block::kNone;
    return out + event("content_block_stop", {{"index", index_++}});
  }
  std::string delta(Json content) const {
    return event("content_block_delta", {{"index", index_}, {"delta", std::move(content)}});
  }

  std::string model_, id_;
  bool begun_ = false;
  Block block_ = Block::kNone;
  int index_ = 0;
  size_t calls_ = 0;
};

}  // namespace

std::unique_ptr<AnswerShape> message_shape(std::string model) {
  return std::make_unique<MessageShape>(std::move(model));
}
std::string token_count_body(size_t tokens) { return dumped({{"input_tokens", tokens}}); }

}  // namespace hadal
