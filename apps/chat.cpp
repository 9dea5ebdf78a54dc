// `hadal chat MODEL`: a conversation at the terminal. The session keeps what the model has read, so
// that a turn feeds only what is new, as long as the new prompt continues the old one.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "answer.h"
#include "base/log.h"
#include "chat_prompt.h"
#include "engine/sampler.h"
#include "interrupt.h"
#include "line_input.h"
#include "model_options.h"
#include "sampling_options.h"
#include "verbs.h"

namespace hadal {
namespace {

Message text_message(Role role, std::string text) {
  Message message;
  message.role = role;
  message.content.push_back({"text", std::move(text)});
  return message;
}

// The conversation, and the session that has read part of it.
class Talk {
 public:
  Talk(Engine& engine, Session& session, const Tokenizer& tokenizer, ChatEncoder encoder,
       SamplingParams params, const SamplingOptions& sampling, std::string system)
      : engine_(engine),
        session_(session),
        tokenizer_(tokenizer),
        encoder_(std::move(encoder)),
        params_(params),
        sampling_(sampling),
        system_(std::move(system)) {
    reset();
  }

  // Forgets the conversation. The session keeps its tokens: the next one may begin alike.
  void reset() {
    conversation_.messages.clear();
    if (!system_.empty()) conversation_.messages.push_back(text_message(Role::kSystem, system_));
  }

  // Streams the answer to standard output. After an error the question is forgotten.
  Status answer(const std::string& question, InterruptGuard& interrupt) {
    conversation_.messages.push_back(text_message(Role::kUser, question));
    Status status = try_answer(interrupt);
    if (!status.ok()) conversation_.messages.pop_back();
    return status;
  }

 private:
  Status try_answer(InterruptGuard& interrupt);
  Status keep_common(const std::vector<int32_t>& ids);

  Engine& engine_;
  Session& session_;
  const Tokenizer& tokenizer_;
  ChatEncoder encoder_;
  SamplingParams params_;
  const SamplingOptions& sampling_;
  std::string system_;
  Conversation conversation_;
  std::vector<int32_t> held_;  // the tokens of session_
};

// Rewinds the session to what it has in common with `ids`, or to nothing where it cannot.
Status Talk::keep_common(const std::vector<int32_t>& ids) {
  auto end = std::ranges::mismatch(held_, ids).in1;
  // One token must be left to feed: its logits begin the answer.
  auto common = std::min<size_t>(end - held_.begin(), ids.size() - 1);
  if (common < held_.size() && !session_.rewind(static_cast<int64_t>(common)).ok()) {
    HADAL_TRY_STATUS(session_.rewind(0));
    common = 0;
  }
  held_.resize(common);
  return {};
}

Status Talk::try_answer(InterruptGuard& interrupt) {
  HADAL_TRY(ChatPrompt prompt, encoder_.encode(conversation_));
  HADAL_TRY_STATUS(keep_common(prompt.ids));
  AnswerPrinter printer(tokenizer_, prompt.opens_reasoning, sampling_.stop);
  auto on_token = [&](const GeneratedToken& token) {
    return printer.push(token.id) && !interrupt.interrupted();
  };
  auto on_prefill = [&](int64_t) { return !interrupt.interrupted(); };
  auto fresh = std::span(prompt.ids).subspan(held_.size());
  auto generation = engine_.generate(session_, fresh, params_, on_token, on_prefill);
  held_ = prompt.ids;
  if (generation.ok()) {
    const auto& ids = generation.value().ids;
    held_.insert(held_.end(), ids.begin(), ids.end());
  }
  held_.resize(session_.length());  // the last token was never fed, nor a cancelled prompt's end
  if (!generation.ok()) return generation.error();
  printer.finish();
  log_info(closing_line(generation.value(), printer.stopped()));
  Message message = text_message(Role::kAssistant, printer.text());
  message.reasoning = printer.reasoning();
  conversation_.messages.push_back(std::move(message));
  if (!sampling_.seed) ++params_.seed;  // a question asked twice may get two answers
  return {};
}

class ChatVerb : public Verb {
 public:
  std::string name() const override { return "chat"; }
  std::string about() const override { return "Talk with a model at the terminal"; }

  void declare(Flags& flags) override {
    flags.argument("MODEL", options_.model, "Folder of the checkpoint");
    flags.section("Prompt");
    flags.option("--system", system_, "System message");
    chat_.declare(flags);
    sampling_.declare(flags);
    options_.declare(flags);
  }

  Result<int> run() override {
    HADAL_TRY(Tokenizer tokenizer, open_tokenizer(options_.model));
    HADAL_TRY(SamplingParams params, sampling_.params(options_.model));
    HADAL_TRY_STATUS(check_sampling(params, tokenizer.vocab_size()));
    HADAL_TRY(ChatEncoder encoder, ChatEncoder::open(options_.model, chat_, tokenizer));
    HADAL_TRY(auto engine, open_engine(options_, 1, 0));
    HADAL_TRY(auto session, engine->open_session());
    Talk talk(*engine, *session, tokenizer, std::move(encoder), params, sampling_, system_);
    return converse(talk);
  }

 private:
  int converse(Talk& talk);

  ModelOptions options_;
  SamplingOptions sampling_;
  ChatFlags chat_;
  std::string system_;
};

int ChatVerb::converse(Talk& talk) {
  InterruptGuard interrupt;
  LineInput input(STDIN_FILENO);
  if (input.terminal())
    log_info("/reset forgets the conversation, /quit or Ctrl-D leaves, Ctrl-C stops an answer");
  int status = 0;
  for (std::string line;;) {
    auto got = input.read("> ", line);
    if (got == LineInput::Got::kInterrupt) {
      if (line.empty() || !input.terminal()) return kInterrupted;
      interrupt.clear();
      continue;
    }
    if (got == LineInput::Got::kEnd || line == "/quit") return status;
    if (line == "/reset") talk.reset();
    if (line.empty() || line == "/reset") continue;
    Status answered = talk.answer(line, interrupt);
    interrupt.clear();
    if (!answered.ok()) {
      std::fprintf(stderr, "hadal: error: %s\n", answered.error().message.c_str());
      // Whoever sits there can ask again; a script must learn that an answer is missing.
      if (!input.terminal()) status = kUserError;
    }
  }
}

}  // namespace

std::unique_ptr<Verb> chat_verb() { return std::make_unique<ChatVerb>(); }

}  // namespace hadal
