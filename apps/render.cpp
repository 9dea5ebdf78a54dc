// `hadal render MODEL --messages FILE`: the prompt that a list of messages becomes, as text and
// ids.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "chat_prompt.h"
#include "model_options.h"
#include "verbs.h"

namespace hadal {
namespace {

class RenderVerb : public Verb {
 public:
  std::string name() const override { return "render"; }
  std::string about() const override {
    return "Print the prompt that a message file becomes: its text, its token ids";
  }

  void declare(Flags& flags) override {
    flags.argument("MODEL", model_, "Folder of the checkpoint (its weights are not read)");
    flags.option("--messages", messages_,
                 "JSON: a list of messages, or an object as /v1/chat/completions takes it");
    flags.require("--messages");
    flags.flag("--ids", ids_, "Print the token ids alone, as a JSON list");
    flags.flag("--json", json_, "Print {\"text\": ..., \"ids\": [...]}");
    flags.flag("--text", text_, "Print the text alone, without a newline after it");
    chat_.declare(flags);
  }

  Result<int> run() override {
    HADAL_TRY(std::string source, read_text(messages_));
    HADAL_TRY(Conversation conversation, parse_conversation(source, messages_));
    HADAL_TRY(Tokenizer tokenizer, open_tokenizer(model_));
    HADAL_TRY(ChatEncoder encoder, ChatEncoder::open(model_, chat_, tokenizer));
    HADAL_TRY(ChatPrompt prompt, encoder.encode(conversation));
    nlohmann::ordered_json ids(prompt.ids);
    if (json_)
      fmt::print("{}\n", nlohmann::ordered_json{{"text", prompt.text}, {"ids", ids}}.dump(
                             -1, ' ', false, nlohmann::json::error_handler_t::replace));
    else if (ids_)
      fmt::print("{}\n", ids.dump());
    else if (text_)
      fmt::print("{}", prompt.text);
    else
      fmt::print("{}\n\n{} tokens: {}\n", prompt.text, prompt.ids.size(), ids.dump());
    return 0;
  }

 private:
  std::string model_, messages_;
  bool ids_ = false, json_ = false, text_ = false;
  ChatFlags chat_;
};

}  // namespace

std::unique_ptr<Verb> render_verb() { return std::make_unique<RenderVerb>(); }

}  // namespace hadal
