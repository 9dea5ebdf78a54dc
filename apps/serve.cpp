// `hadal serve MODEL`: the model behind HTTP, for many users at once.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/log.h"
#include "engine/sampler.h"
#include "model_options.h"
#include "sampling_options.h"
#include "server/server.h"
#include "text/json_text.h"
#include "verbs.h"

namespace hadal {
namespace {

class ServeVerb : public Verb {
 public:
  std::string name() const override { return "serve"; }
  std::string about() const override {
    return "Serve a model over HTTP (OpenAI and Anthropic APIs)";
  }

  void declare(Flags& flags) override {
    flags.argument("MODEL", options_.model, "Folder of the checkpoint");
    flags.section("Server");
    flags.option("--host", http_.host, "Address to listen on [127.0.0.1]; 0.0.0.0: all");
    flags.option("--port", http_.port, "Port to listen on (0: any free one)");
    flags.option("--served-model-name", names_,
                 "Public name of the model; may be given several times (not given: the folder's)");
    flags.flag("--any-model-name", any_name_, "Answer requests for every model name");
    flags.option("--api-key", keys_, "Key that /v1 asks for; may be given several times");
    flags.option("--max-body-mib", max_body_, "Largest request body in MiB");
    flags.flag("--disable-log-requests", quiet_, "No line on standard error for each request");
    flags.section("Batching");
    flags.option("--max-num-seqs", sequences_, "Requests that run at once");
    flags.option("--max-num-batched-tokens", step_tokens_, "Tokens of one step over all requests");
    flags.option("--max-num-queued-reqs", queued_, "Requests that may wait; more get status 503");
    flags.flag("--no-enable-prefix-caching", no_reuse_,
               "Do not continue kept sessions where a prompt begins like them");
    flags.section("Chat format");
    flags.option("--chat-format", format_,
                 "v3, r1, v3.1, v3.2, v4-preview or v4-0731 (not given: as the model's files say)");
    flags.option("--default-chat-template-kwargs", kwargs_,
                 "JSON, {\"thinking\": true or false, \"reasoning_effort\": \"...\"}, where a "
                 "request does not say (not given: thinking with V4 and R1)");
    options_.declare(flags);
  }

  Result<int> run() override;

 private:
  Status check() const;
  Result<ServedOptions> served_options(const Tokenizer& tokenizer);
  Status read_kwargs(ChatOptions* chat) const;

  ModelOptions options_;
  HttpOptions http_;
  std::vector<std::string> names_, keys_;
  std::string format_, kwargs_;
  int sequences_ = 16, queued_ = 256, max_body_ = 16;
  int64_t step_tokens_ = 512;
  bool any_name_ = false, quiet_ = false, no_reuse_ = false;
};

Status ServeVerb::check() const {
  auto at_least = [](const char* name, int64_t value, int64_t lowest) -> Status {
    if (value >= lowest) return {};
    return Error{fmt::format("{} is {}: it must be {} or more", name, value, lowest)};
  };
  HADAL_TRY_STATUS(at_least("--max-num-seqs", sequences_, 1));
  HADAL_TRY_STATUS(at_least("--max-num-queued-reqs", queued_, 0));
  HADAL_TRY_STATUS(at_least("--max-body-mib", max_body_, 1));
  if (http_.port < 0 || http_.port > 65535)
    return Error{fmt::format("--port is {}: it must be from 0 to 65535", http_.port)};
  if (step_tokens_ <= sequences_)
    return Error{
        fmt::format("--max-num-batched-tokens is {}: it must exceed --max-num-seqs ({}), or "
                    "prompts could not be read beside so many answers",
                    step_tokens_, sequences_)};
  for (const std::string& key : keys_)
    if (key.empty()) return Error{"--api-key is empty: give the key"};
  return {};
}

Status ServeVerb::read_kwargs(ChatOptions* chat) const {
  if (kwargs_.empty()) return {};
  const std::string name = "--default-chat-template-kwargs";
  HADAL_TRY(JsonValue kwargs, parse_json(kwargs_, name));
  for (const JsonMember& m : kwargs.members) {
    using Kind = JsonValue::Kind;
    bool is_bool = m.value.kind == Kind::kTrue || m.value.kind == Kind::kFalse;
    if ((m.key == "thinking" || m.key == "enable_thinking") && is_bool) {
      chat->thinking = m.value.kind == Kind::kTrue;
    } else if (m.key == "reasoning_effort" && m.value.kind == Kind::kString) {
      chat->reasoning_effort = m.value.text;
    } else {
      return Error{
          fmt::format("{}: give an object with \"thinking\", true or false, and "
                      "\"reasoning_effort\", a string",
                      name)};
    }
  }
  return {};
}

Result<ServedOptions> ServeVerb::served_options(const Tokenizer& tokenizer) {
  ServedOptions served;
  served.names = names_;
  if (served.names.empty()) {
    std::filesystem::path path = std::filesystem::absolute(options_.model).lexically_normal();
    served.names.push_back(path.has_filename() ? path.filename() : path.parent_path().filename());
  }
  served.any_name = any_name_;
  served.api_keys = keys_;
  served.log_requests = !quiet_;
  served.version = HADAL_VERSION;
  HADAL_TRY(served.sampling, SamplingOptions().params(options_.model));
  HADAL_TRY_STATUS(check_sampling(served.sampling, tokenizer.vocab_size()));
  auto format =
      format_.empty() ? chat_format_of_checkpoint(options_.model) : chat_format_by_name(format_);
  if (!format.ok() && !format_.empty()) return format.error();
  if (format.ok()) {
    served.chat.format = format.value();
  } else {
    served.no_chat = "cannot be answered: " + format.error().message;
    log_warning(format.error().message + " /v1/completions works all the same.");
  }
  // As the makers' own service does: V4 thinks unless told not to, V3.1 and V3.2 when told to.
  served.chat.thinking =
      served.chat.format >= ChatFormat::kV4Preview || served.chat.format == ChatFormat::kR1;
  HADAL_TRY_STATUS(read_kwargs(&served.chat));
  return served;
}

Result<int> ServeVerb::run() {
  HADAL_TRY_STATUS(check());
  HADAL_TRY(Tokenizer tokenizer, open_tokenizer(options_.model));
  ServerOptions server;
  HADAL_TRY(server.served, served_options(tokenizer));
  PromptStrings strings = load_prompt_strings(options_.model, server.served.chat.format);
  HADAL_TRY(auto engine, open_engine(options_, sequences_, step_tokens_));
  server.http = http_;
  server.http.max_body_bytes = static_cast<int64_t>(max_body_) << 20;
  server.limits = {std::min(step_tokens_, engine->info().max_step_tokens), sequences_, queued_};
  if (server.limits.max_step_tokens <= sequences_)
    return Error{fmt::format("--max-model-len is {}: it leaves no room for an answer",
                             engine->info().max_context)};
  server.reuse_prefixes = !no_reuse_;
  HADAL_TRY(auto running, Server::open(server, *engine, tokenizer, std::move(strings)));
  std::string host = http_.host == "0.0.0.0" || http_.host == "::" ? "127.0.0.1" : http_.host;
  log_info(fmt::format("serving {} with {} requests of up to {} tokens at http://{}:{}/v1",
                       server.served.names.front(), sequences_, engine->info().max_context, host,
                       running->port()));
  return running->run() ? 0 : kInterrupted;
}

}  // namespace

std::unique_ptr<Verb> serve_verb() { return std::make_unique<ServeVerb>(); }

}  // namespace hadal
