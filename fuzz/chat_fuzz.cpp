// libFuzzer target: any bytes as a message file, rendered in every format and mode; and as the
// Python source that prompt strings are looked for in. Nothing may crash, and a rendered prompt
// keeps the form that the tokeniser relies on.
#include <cstddef>
#include <cstdint>
#include <string>

#include "text/chat.h"
#include "text/python_literals.h"

namespace {

using namespace hadal;

void check_segments(const Prompt& prompt) {
  bool text_before = false;
  for (const Segment& s : prompt.segments) {
    HADAL_CHECK(!s.text.empty(), "an empty segment");
    HADAL_CHECK(s.control || !text_before, "two ordinary segments side by side");
    text_before = !s.control;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  python_literals(bytes);
  auto conversation = parse_conversation(bytes, "input");
  if (!conversation.ok()) return 0;
  for (ChatFormat format : {ChatFormat::kV3, ChatFormat::kR1, ChatFormat::kV31, ChatFormat::kV32,
                            ChatFormat::kV4Preview, ChatFormat::kV4_0731}) {
    PromptStrings strings = own_prompt_strings(format);
    for (bool thinking : {false, true}) {
      for (bool drop : {false, true}) {
        ChatOptions options;
        options.format = format;
        options.thinking = thinking;
        options.drop_thinking = drop;
        auto prompt = encode_chat(conversation.value(), options, strings);
        if (prompt.ok()) check_segments(prompt.value());
        options.reasoning_effort = "max";
        prompt =
            encode_chat(conversation.value(), options_for(conversation.value(), options), strings);
        if (prompt.ok()) check_segments(prompt.value());
      }
    }
  }
  return 0;
}
