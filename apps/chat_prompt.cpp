// Messages to token ids.
#include "chat_prompt.h"

#include "base/log.h"

namespace hadal {

void ChatFlags::declare(Flags& flags) {
  flags.section("Chat format");
  flags.flag("--thinking", thinking, "Let the model reason before it answers");
  flags.option("--reasoning-effort", reasoning_effort, "low, high or max, where the model has it");
  flags.option("--chat-format", format,
               "v3, r1, v3.1, v3.2, v4-preview or v4-0731 (not given: as the model's files say)");
  flags.flag("--parse-special", parse_special,
             "Read special tokens written in the text as control tokens");
}

Result<ChatEncoder> ChatEncoder::open(const std::string& model, const ChatFlags& flags,
                                      const Tokenizer& tokenizer) {
  HADAL_TRY(ChatFormat format, flags.format.empty() ? chat_format_of_checkpoint(model)
                                                    : chat_format_by_name(flags.format));
  ChatOptions options;
  options.format = format;
  options.thinking = flags.thinking;
  options.parse_special = flags.parse_special;
  options.reasoning_effort = flags.reasoning_effort;
  return ChatEncoder(std::move(options), load_prompt_strings(model, format), tokenizer);
}

Result<ChatPrompt> ChatEncoder::encode(const Conversation& conversation) {
  HADAL_TRY(Prompt prompt,
            encode_chat(conversation, options_for(conversation, options_), strings_));
  if (prompt.own_wording && !warned_) log_warning(strings_.warning);
  warned_ = warned_ || prompt.own_wording;
  std::vector<TextPart> parts;
  for (const Segment& s : prompt.segments)
    parts.push_back({s.text, s.control ? SpecialTokens::kParse : SpecialTokens::kAsText});
  return ChatPrompt{prompt.text(), tokenizer_->encode(parts), prompt.opens_reasoning};
}

}  // namespace hadal
