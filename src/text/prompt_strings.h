// The long fixed English texts inside prompts (tools block, response format, reasoning effort).
// They are the checkpoint's own data: read from its encoding/*.py by looking for the string whose
// SHA-256 is known (specs V3.2 8.4, V4 8.2). Where none matches, our own wording stands in.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_format.h"

namespace hadal {

// head + JSON + tail; texts without JSON have no tail. Special tokens are literal.
struct FixedText {
  std::string head, tail;
  bool own = true;  // our wording, not the official one
};

struct PromptStrings {
  FixedText tools, response_format;
  FixedText effort_a;  // V4 preview "max", 0731 "high"
  FixedText effort_b;  // 0731 "max"
  // One sentence when some text that the format can need is our own; print it once, when a
  // prompt says that it used one (Prompt::own_wording).
  std::string warning;
};

struct Fingerprint {
  enum class Part { kWhole, kHead, kTail };  // kWhole includes the JSON's placeholder
  FixedText PromptStrings::*text;
  Part part;
  size_t bytes;
  std::string_view sha256;
};

// The official texts of a format. V3 and R1 have none, and none is published for V3.1.
std::vector<Fingerprint> fingerprints_of(ChatFormat format);

// Nothing but our own wording, without the warning about missing official texts.
PromptStrings own_prompt_strings(ChatFormat format);

// Replaces each text for which `python_source` holds a string that all its fingerprints fit.
void find_prompt_strings(std::string_view python_source,
                         const std::vector<Fingerprint>& fingerprints, PromptStrings* strings);

// The official texts of model_dir/encoding/*.py, our own for those that are not there.
PromptStrings load_prompt_strings(const std::string& model_dir, ChatFormat format,
                                  const std::vector<Fingerprint>& fingerprints);
PromptStrings load_prompt_strings(const std::string& model_dir, ChatFormat format);

}  // namespace hadal
