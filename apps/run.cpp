// `hadal run MODEL "text"`: one answer.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "answer.h"
#include "base/log.h"
#include "chat_prompt.h"
#include "engine/sampler.h"
#include "interrupt.h"
#include "model_options.h"
#include "sampling_options.h"
#include "verbs.h"

namespace hadal {
namespace {

// The bytes of a token as they can stand on one line, escaped where they are no text.
std::string quoted(const std::string& bytes) {
  std::string out = "\"", text;
  Utf8Stream utf8;
  utf8.push(bytes, text);
  utf8.finish(text);
  for (unsigned char c : bytes) {
    if (c == '"' || c == '\\')
      out += fmt::format("\\{}", static_cast<char>(c));
    else if (c == '\n')
      out += "\\n";
    else if (c < 0x20 || c == 0x7f || (c >= 0x80 && text != bytes))
      out += fmt::format("\\x{:02x}", c);
    else
      out += static_cast<char>(c);
  }
  return out + '"';
}

void print_logprobs(const Tokenizer& tokenizer, const std::vector<GeneratedToken>& tokens) {
  fmt::print("\n{:>8} {:>10}  token, then the best ones\n", "id", "logprob");
  for (const GeneratedToken& t : tokens) {
    fmt::print("{:>8} {:>10.5f}  {}", t.id, t.logprob, quoted(tokenizer.token_bytes(t.id)));
    for (const TokenLogprob& best : t.top)
      fmt::print("  [{} {:.5f} {}]", best.id, best.logprob, quoted(tokenizer.token_bytes(best.id)));
    fmt::print("\n");
  }
}

class RunVerb : public Verb {
 public:
  std::string name() const override { return "run"; }
  std::string about() const override { return "Answer one text"; }

  void declare(Flags& flags) override {
    flags.argument("MODEL", options_.model, "Folder of the checkpoint");
    flags.optional_argument("TEXT", text_, "The text; '-' or none reads standard input");
    flags.section("Prompt");
    flags.flag("--raw", raw_, "Continue the text (begin-of-sentence token + TEXT), no chat format");
    flags.option("--system", system_, "System message");
    flags.option("--logprobs", logprobs_,
                 "Print each token's log-probability and those of the N best tokens");
    chat_.declare(flags);
    sampling_.declare(flags);
    options_.declare(flags);
  }

  Result<int> run() override;

 private:
  Result<std::string> prompt_text() const;
  Result<ChatPrompt> encode(const Tokenizer& tokenizer, const std::string& text) const;

  ModelOptions options_;
  SamplingOptions sampling_;
  ChatFlags chat_;
  std::string text_, system_;
  bool raw_ = false;
  std::optional<int64_t> logprobs_;
};

Result<std::string> RunVerb::prompt_text() const {
  std::string text = text_;
  if (text.empty() || text == "-") {
    if (isatty(STDIN_FILENO) == 1) log_info("type the text, then Ctrl-D");
    HADAL_TRY(text, read_text("-"));
    if (!text.empty() && text.back() == '\n') text.pop_back();  // what echo and editors add
  }
  if (text.empty()) return Error{"the prompt is empty: give a text after MODEL, or pipe one in"};
  return text;
}

Result<ChatPrompt> RunVerb::encode(const Tokenizer& tokenizer, const std::string& text) const {
  if (raw_) {
    auto mode = chat_.parse_special ? SpecialTokens::kParse : SpecialTokens::kAsText;
    return ChatPrompt{text, tokenizer.encode(text, mode), false};
  }
  HADAL_TRY(ChatEncoder encoder, ChatEncoder::open(options_.model, chat_, tokenizer));
  Conversation conversation;
  auto add = [&](Role role, const std::string& content) {
    Message message;
    message.role = role;
    message.content.push_back({"text", content});
    conversation.messages.push_back(std::move(message));
  };
  if (!system_.empty()) add(Role::kSystem, system_);
  add(Role::kUser, text);
  return encoder.encode(conversation);
}

Result<int> RunVerb::run() {
  if (raw_ && (!system_.empty() || chat_.thinking))
    return Error{"--raw continues the text as it is: leave out --system and --thinking"};
  // All that can be wrong with the request comes before the weights, which may take minutes.
  HADAL_TRY(Tokenizer tokenizer, open_tokenizer(options_.model));
  HADAL_TRY(SamplingParams params, sampling_.params(options_.model));
  if (logprobs_) params.logprobs = static_cast<int>(std::clamp<int64_t>(*logprobs_, -2, 1 << 30));
  if (logprobs_ && *logprobs_ < 0) return Error{"--logprobs must be 0 or more"};
  HADAL_TRY_STATUS(check_sampling(params, tokenizer.vocab_size()));
  HADAL_TRY(std::string text, prompt_text());
  HADAL_TRY(ChatPrompt prompt, encode(tokenizer, text));
  HADAL_TRY(auto engine, open_engine(options_, 1, 0));
  HADAL_TRY(auto session, engine->open_session());
  auto bos = static_cast<int32_t>(engine->info().bos_id);
  if (raw_ && prompt.ids.front() != bos) prompt.ids.insert(prompt.ids.begin(), bos);

  InterruptGuard interrupt;
  AnswerPrinter printer(tokenizer, prompt.opens_reasoning, sampling_.stop);
  std::vector<GeneratedToken> tokens;
  auto on_token = [&](const GeneratedToken& token) {
    if (params.logprobs >= 0) tokens.push_back(token);
    return printer.push(token.id) && !interrupt.interrupted();
  };
  auto on_prefill = [&](int64_t) { return !interrupt.interrupted(); };
  auto generation = engine->generate(*session, prompt.ids, params, on_token, on_prefill);
  if (!generation.ok()) return generation.error();
  printer.finish();
  if (params.logprobs >= 0) print_logprobs(tokenizer, tokens);
  std::string seed = params.temperature > 0 ? fmt::format(", seed {}", params.seed) : "";
  log_info(closing_line(generation.value(), printer.stopped()) + seed);
  return interrupt.interrupted() ? kInterrupted : 0;
}

}  // namespace

std::unique_ptr<Verb> run_verb() { return std::make_unique<RunVerb>(); }

}  // namespace hadal
