// Which release's chat encoding a checkpoint speaks.
#pragma once

#include <string>

#include "base/status.h"

namespace hadal {

// kV4_0731 is also that of V4-Pro-0813; kV31 also that of V3.1-Terminus and V3.2-Exp.
enum class ChatFormat { kV3, kR1, kV31, kV32, kV4Preview, kV4_0731 };

// "v3", "r1", "v3.1", "v3.2", "v4-preview", "v4-0731".
Result<ChatFormat> chat_format_by_name(const std::string& name);
const char* chat_format_name(ChatFormat format);
// "V3", "R1", ...: for sentences.
const char* chat_format_title(ChatFormat format);

// What tells the formats of one model_type apart.
struct ChatFormatFacts {
  std::string model_type;
  std::string chat_template;      // Jinja text, empty where the checkpoint has none
  bool encoding_v32 = false;      // encoding/encoding_dsv32.py is there
  bool encoding_v4 = false;       // encoding/encoding_dsv4.py is there ...
  bool encoding_v4_0731 = false;  // ... and holds the effort text that came with 0731
  bool dspark = false;            // config.json has dspark_block_size
  bool think_tokens = false;      // <think> is a token of its own
};

// deepseek_v4: the encoder's file decides where it is there, else dspark_block_size: 0731.
// deepseek_v32: V3.2, but V3.1 (the Exp release) with a V3.1 template and no encoder's file.
// deepseek_v3: by the template: "</think>" right after the assistant's token is V3.1's; "</think>"
// elsewhere is R1's; neither is V3's. Without a template: V3.1 with <think> as a token, else V3.
Result<ChatFormat> choose_chat_format(const ChatFormatFacts& facts);

// Reads the facts from config.json, tokenizer.json, tokenizer_config.json, chat_template.jinja,
// assets/chat_template.jinja and encoding/*.py.
Result<ChatFormat> chat_format_of_checkpoint(const std::string& model_dir);

}  // namespace hadal
