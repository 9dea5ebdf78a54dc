// Chat requests to prompts.
#include "server/chat_request.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "text/chat_encoders.h"

namespace hadal {
namespace {

using Tools = ChatRequest::Tools;

bool is_v4(ChatFormat format) { return format >= ChatFormat::kV4Preview; }

// The level that this release's encoder knows.
std::string effort_of(const std::string& effort, ChatFormat format) {
  if (!is_v4(format) || effort.empty() || effort == "none") return {};
  if (effort == "xhigh" || effort == "max") return "max";
  if (effort == "medium" || effort == "high") return "high";
  return format == ChatFormat::kV4_0731 ? "low" : "";
}

ChatOptions options_of(Fields& fields, const Served& served, const ChatRequest& request) {
  ChatOptions options = served.options.chat;
  bool known = false;
  for (const char* name : {"", "none", "minimal", "low", "medium", "high", "xhigh", "max"})
    known = known || request.effort == name;
  if (!known)
    fields.fail("reasoning_effort",
                fmt::format("is \"{}\": use none, minimal, low, medium, high, xhigh or max",
                            request.effort));
  if (request.thinking) {
    options.thinking = *request.thinking;
  } else if (!request.effort.empty()) {
    options.thinking = request.effort != "none";
  }
  if (options.format == ChatFormat::kV3) options.thinking = false;
  options.reasoning_effort =
      effort_of(request.effort.empty() ? options.reasoning_effort : request.effort, options.format);
  options.add_generation_prompt = request.add_generation_prompt;
  return options;
}

// How the model would begin the call that it has to make.
std::string opening_of(const ChatRequest& request, ChatFormat format) {
  bool named = request.tools == Tools::kNamed;
  if (!named && request.tools != Tools::kRequired) return {};
  if (format == ChatFormat::kV31) {
    std::string text = std::string(kCallsBegin) + std::string(kCallBegin);
    return named ? text + request.named_tool + std::string(kSep) : text;
  }
  const char* block = format == ChatFormat::kV32 ? "function_calls" : "tool_calls";
  std::string text = fmt::format("\n\n<{0}{1}>\n<{0}invoke", kDsml, block);
  return named ? text + fmt::format(" name=\"{}\">\n", request.named_tool) : text;
}

std::vector<int32_t> encode(const Served& served, const Prompt& prompt) {
  std::vector<TextPart> parts;
  for (const Segment& s : prompt.segments)
    parts.push_back({s.text, s.control ? SpecialTokens::kParse : SpecialTokens::kAsText});
  return served.tokenizer.encode(parts);
}

}  // namespace

ChatPromptIds chat_prompt(Fields& fields, Served& served, ChatRequest& request) {
  ChatPromptIds out;
  if (!served.options.no_chat.empty()) fields.fail("messages", served.options.no_chat);
  ChatOptions options = options_of(fields, served, request);
  if (fields.error()) return out;
  served.replay.restore(request.conversation);
  auto prompt = encode_chat(request.conversation, options, served.strings);
  if (!prompt.ok()) {
    fields.fail_with({400, prompt.error().message, "messages"});
    return out;
  }
  Prompt& p = prompt.value();
  if (p.own_wording && !std::exchange(served.warned, true)) log_warning(served.strings.warning);
  out.opens_reasoning = p.opens_reasoning;
  Prompt opening;
  opening.add_markup(opening_of(request, options.format), {kDsml, kCallsBegin, kCallBegin, kSep});
  if (p.opens_reasoning) {
    out.forced = encode(served, opening);
  } else {
    out.opening = opening.text();
    for (const Segment& s : opening.segments)
      s.control ? p.add_control(s.text) : p.add_text(s.text);
  }
  out.ids = encode(served, p);
  return out;
}

void encode_chat_request(Fields& fields, Served& served, ChatRequest& request, Ask* ask) {
  AnswerOptions& options = ask->options;
  ChatPromptIds prompt = chat_prompt(fields, served, request);
  ask->request.prompt = std::move(prompt.ids);
  options.in_reasoning = prompt.opens_reasoning;
  options.opening = std::move(prompt.opening);
  options.forced = std::move(prompt.forced);
  options.chat = true;
  options.tools = request.tools != Tools::kNone;
  options.one_call = options.tools && !request.parallel_calls;
  fit_context(fields, served, ask->request.prompt.size(), request.limit, ask);
}

}  // namespace hadal
