// The names of the formats, and the facts by which a checkpoint shows its own.
#include "text/chat_format.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "text/json_text.h"
#include "text/prompt_strings.h"

namespace hadal {
namespace {

struct Name {
  ChatFormat format;
  const char *name, *title;
};
constexpr Name kNames[] = {
    {ChatFormat::kV3, "v3", "V3"},
    {ChatFormat::kR1, "r1", "R1"},
    {ChatFormat::kV31, "v3.1", "V3.1"},
    {ChatFormat::kV32, "v3.2", "V3.2"},
    {ChatFormat::kV4Preview, "v4-preview", "V4 preview"},
    {ChatFormat::kV4_0731, "v4-0731", "V4 (0731)"},
};

const Name& entry_of(ChatFormat format) {
  for (const Name& n : kNames) {
    if (n.format == format) return n;
  }
  check_failed(__FILE__, __LINE__, "format", std::to_string(int(format)));
}

// Empty where the file is not there or cannot be read: every file but config.json is optional.
std::string read_if_there(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  if (in) text << in.rdbuf();
  return text.str();
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

std::string read_chat_template(const std::filesystem::path& dir) {
  for (const char* name : {"chat_template.jinja", "assets/chat_template.jinja"}) {
    std::string text = read_if_there(dir / name);
    if (!text.empty()) return text;
  }
  auto config = parse_json(read_if_there(dir / "tokenizer_config.json"), "tokenizer_config.json");
  if (!config.ok()) return {};
  const JsonValue* text = config.value().find("chat_template");
  return text && text->kind == JsonValue::Kind::kString ? text->text : std::string();
}

bool has_effort_b(const std::filesystem::path& encoder) {
  PromptStrings strings;
  find_prompt_strings(read_if_there(encoder), fingerprints_of(ChatFormat::kV4_0731), &strings);
  return !strings.effort_b.own;
}

}  // namespace

Result<ChatFormat> chat_format_by_name(const std::string& name) {
  std::string all;
  for (const Name& n : kNames) {
    if (name == n.name) return n.format;
    all += all.empty() ? n.name : std::string(", ") + n.name;
  }
  return Error{fmt::format("unknown chat format \"{}\": use one of {}.", name, all)};
}

const char* chat_format_name(ChatFormat format) { return entry_of(format).name; }
const char* chat_format_title(ChatFormat format) { return entry_of(format).title; }

Result<ChatFormat> choose_chat_format(const ChatFormatFacts& facts) {
  // The second sign is the template's variable, for copies that were laid out anew.
  bool template_v31 = contains(facts.chat_template, "<｜Assistant｜></think>") ||
                      contains(facts.chat_template, "not thinking");
  if (facts.model_type == "deepseek_v4") {
    bool later = facts.encoding_v4 ? facts.encoding_v4_0731 : facts.dspark;
    return later ? ChatFormat::kV4_0731 : ChatFormat::kV4Preview;
  }
  if (facts.model_type == "deepseek_v32") {
    return !facts.encoding_v32 && template_v31 ? ChatFormat::kV31 : ChatFormat::kV32;
  }
  if (facts.model_type == "deepseek_v3") {
    if (template_v31) return ChatFormat::kV31;
    if (contains(facts.chat_template, "</think>")) return ChatFormat::kR1;
    return facts.chat_template.empty() && facts.think_tokens ? ChatFormat::kV31 : ChatFormat::kV3;
  }
  return Error{fmt::format(
      "no chat format is known for model_type \"{}\": supported are deepseek_v3, deepseek_v32 and "
      "deepseek_v4; name one with --chat-format or use --raw.",
      facts.model_type)};
}

Result<ChatFormat> chat_format_of_checkpoint(const std::string& model_dir) {
  std::filesystem::path dir = model_dir;
  std::string path = (dir / "config.json").string();
  std::string source = read_if_there(path);
  if (source.empty()) {
    return Error{fmt::format("cannot read {}: give the folder of a checkpoint.", path)};
  }
  HADAL_TRY(JsonValue config, parse_json(source, path));
  const JsonValue* type = config.find("model_type");
  if (!type || type->kind != JsonValue::Kind::kString) {
    return Error{
        fmt::format("{}: model_type must be a string; use the released config.json.", path)};
  }
  ChatFormatFacts facts;
  facts.model_type = type->text;
  facts.chat_template = read_chat_template(dir);
  std::error_code error;
  facts.encoding_v32 = std::filesystem::exists(dir / "encoding/encoding_dsv32.py", error);
  facts.encoding_v4 = std::filesystem::exists(dir / "encoding/encoding_dsv4.py", error);
  facts.encoding_v4_0731 = facts.encoding_v4 && has_effort_b(dir / "encoding/encoding_dsv4.py");
  facts.dspark = config.find("dspark_block_size") != nullptr;
  // Only deepseek_v3 asks; as a key of the vocabulary <think> is one token too.
  if (facts.model_type == "deepseek_v3") {
    facts.think_tokens = contains(read_if_there(dir / "tokenizer.json"), "\"<think>\"");
  }
  return choose_chat_format(facts);
}

}  // namespace hadal
