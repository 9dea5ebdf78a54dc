// The fingerprints of the official texts, our own wording for each, and the search.
#include "text/prompt_strings.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/hash.h"
#include "text/python_literals.h"

namespace hadal {
namespace {

using Part = Fingerprint::Part;

constexpr std::string_view kToolsSlot = "{tool_schemas}", kSchemaSlot = "{schema}";

std::string_view slot_of(FixedText PromptStrings::*text) {
  if (text == &PromptStrings::tools) return kToolsSlot;
  if (text == &PromptStrings::response_format) return kSchemaSlot;
  return {};
}

const char* name_of(FixedText PromptStrings::*text) {
  if (text == &PromptStrings::tools) return "tools";
  if (text == &PromptStrings::response_format) return "response format";
  return text == &PromptStrings::effort_a ? "reasoning effort" : "maximum reasoning effort";
}

// What the official files call their tokens, where they do not assign them by that name.
constexpr std::pair<std::string_view, std::string_view> kKnownNames[] = {
    {"dsml_token", "｜DSML｜"},
    {"thinking_start_token", "<think>"},
    {"thinking_end_token", "</think>"},
};

std::string substitute(std::string_view text, const PythonLiterals& literals) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    size_t close = text[i] == '{' ? text.find('}', i) : text.npos;
    std::string_view value, name;
    bool known = false;
    if (close != text.npos) {
      name = text.substr(i + 1, close - i - 1);
      for (auto& [n, v] : kKnownNames) {
        if (n == name) value = v, known = true;
      }
      for (auto& [n, v] : literals.names) {
        if (!known && n == name) value = v, known = true;
      }
    }
    if (known && text.substr(i, close + 1 - i) != kToolsSlot &&
        text.substr(i, close + 1 - i) != kSchemaSlot) {
      out += value;
      i = close + 1;
    } else {
      out += text[i++];
    }
  }
  return out;
}

std::string undo_braces(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    out += text[i];
    if ((text[i] == '{' || text[i] == '}') && i + 1 < text.size() && text[i + 1] == text[i]) ++i;
  }
  return out;
}

bool matches(const Fingerprint& print, const std::string& whole, const FixedText& split) {
  const std::string& part = print.part == Part::kWhole  ? whole
                            : print.part == Part::kHead ? split.head
                                                        : split.tail;
  return part.size() == print.bytes && sha256_hex(part) == print.sha256;
}

// Whether `whole` is the text that every fingerprint of `text` names; fills `found` if so.
bool is_text(FixedText PromptStrings::*text, const std::vector<Fingerprint>& prints,
             const std::string& whole, FixedText* found) {
  FixedText split{whole, "", false};
  if (std::string_view slot = slot_of(text); !slot.empty()) {
    size_t at = whole.find(slot);
    if (at == whole.npos) return false;
    split.head = whole.substr(0, at);
    split.tail = whole.substr(at + slot.size());
  }
  bool any = false;
  for (const Fingerprint& print : prints) {
    if (print.text != text) continue;
    if (!matches(print, whole, split)) return false;
    any = true;
  }
  if (any) *found = split;
  return any;
}

std::string read_source(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

constexpr const char* kDsmlSkeleton =
    R"(<｜DSML｜{0}>
<｜DSML｜invoke name="$TOOL_NAME">
<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>
...
</｜DSML｜invoke>
<｜DSML｜invoke name="$TOOL_NAME2">
...
</｜DSML｜invoke>
</｜DSML｜{0}>
)";

FixedText own_v32_tools() {
  FixedText t;
  t.head =
      "## Tools\n\n"
      "The functions described at the end of this section can be called while answering.\n"
      "A call is a \"<｜DSML｜function_calls>\" block at the end of the reply, laid out like "
      "this:\n" +
      fmt::format(fmt::runtime(kDsmlSkeleton), "function_calls") +
      "Text values are written plainly, without quotes or escapes, under string=\"true\"; every "
      "other value (number, boolean, list, object) is written as JSON under string=\"false\".\n\n"
      "When the reply begins in thinking mode (with <think>), reason first, also about each "
      "result that comes back, and end the reasoning with </think>, as here:\n\n"
      "<｜DSML｜function_calls>\n...\n</｜DSML｜function_calls>\n\n"
      "<function_results>\n...\n</function_results>\n\n"
      "<think>...what the results mean...</think>\n\n"
      "These are the functions, one JSON description a line:\n\n"
      "<functions>\n";
  t.tail = "\n</functions>\n";
  return t;
}

FixedText own_v4_tools() {
  FixedText t;
  t.head =
      "## Tools\n\n"
      "The tools listed below can be called while answering. A call is a "
      "\"<｜DSML｜tool_calls>\" block at the end of the reply, laid out like this:\n\n" +
      fmt::format(fmt::runtime(kDsmlSkeleton), "tool_calls") +
      "\nText values are written plainly, without quotes or escapes, under `string=\"true\"`; "
      "every other value (number, boolean, list, object) is written as JSON under "
      "`string=\"false\"`.\n\n"
      "When the reply begins in thinking mode (with <think>), finish the whole reasoning inside "
      "<think>...</think> before the first call or the answer.\n\n"
      "When it begins with </think>, call or answer at once.\n\n"
      "### Available Tool Schemas\n\n";
  t.tail = "\n\nCall only tools of this list, with parameters that fit their schemas.\n";
  return t;
}

FixedText own_v31_tools() {
  FixedText t;
  t.head = "## Tools\nThese tools can be called while answering:\n";
  t.tail =
      "\nA call must have exactly this form:\n"
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>TOOL_NAME<｜tool▁sep｜>ARGUMENTS<"
      "｜tool▁call▁end｜>"
      "MORE_CALLS<｜tool▁calls▁end｜>\n\n"
      "In it:\n"
      "- `TOOL_NAME` is the name of one of the tools above, letter for letter\n"
      "- `ARGUMENTS` is one JSON object that fits the tool's parameters\n"
      "- several calls follow each other with nothing in between\n";
  return t;
}

}  // namespace

std::vector<Fingerprint> fingerprints_of(ChatFormat format) {
  constexpr auto kTools = &PromptStrings::tools;
  constexpr auto kResponse = &PromptStrings::response_format;
  std::vector<Fingerprint> v4 = {
      {kTools, Part::kHead, 890,
       "c7c9042638154a237b5d1bd48be772374a35a4d24c5cacfd1ffbd92703da329c"},
      {kTools, Part::kTail, 99, "690702850fe256512cb1ee67c4e436ecb3e735c71ebee77ca45ff357a75fb5a7"},
      {kResponse, Part::kWhole, 88,
       "012f31fcc1338bdfe25b132eaf56ab020ee75ab8e649f37b30b8e5f544fb17a5"},
      {&PromptStrings::effort_a, Part::kWhole, 476,
       "f7a24f3b3050d4a83781e9b755b316aae2ec1d9dc87562541d90bcb04d7350f7"},
  };
  switch (format) {
    case ChatFormat::kV3:
    case ChatFormat::kR1:
    case ChatFormat::kV31:
      return {};
    case ChatFormat::kV32:
      return {{kTools, Part::kWhole, 1161,
               "b6542b149df62802c1ff692ca145d83246d4d0b2a0a92bc8afd8c658405dee92"},
              {kResponse, Part::kHead, 80,
               "5200f58413f49f3957c43beddbc97bead023232cb5934fad0c1997c30c139112"}};
    case ChatFormat::kV4Preview:
      return v4;
    case ChatFormat::kV4_0731:
      v4.push_back({&PromptStrings::effort_b, Part::kWhole, 528,
                    "53fb31b8392ec5b4a926481943efc67636748f137c1a49d493a7af4d4fa55d2c"});
      return v4;
  }
  return {};
}

PromptStrings own_prompt_strings(ChatFormat format) {
  PromptStrings s;
  if (format == ChatFormat::kV31) {
    s.tools = own_v31_tools();
    s.warning =
        "V3.1 publishes no machine-readable text that announces tools: hadal's own wording is "
        "used, so write the tools into the system message where the official text matters.";
    return s;
  }
  s.tools = format == ChatFormat::kV32 ? own_v32_tools() : own_v4_tools();
  s.response_format.head =
      "## Response Format:\n\nThe reply must be JSON that satisfies this schema:\n";
  s.effort_a.head =
      "Reasoning Effort: as high as it goes.\n"
      "Think the problem through in full before answering: take it apart, follow each possible "
      "line to its end, look for cases that break the conclusion, and check every step and every "
      "assumption in writing.\n\n";
  s.effort_b.head =
      "Reasoning Effort: beyond the usual maximum.\n"
      "Spend as much thought as the problem can use: break it down to its smallest parts, trace "
      "each cause, solve it in more than one independent way, and stop only when the results "
      "agree and no assumption is left without proof.\n\n";
  return s;
}

void find_prompt_strings(std::string_view python_source,
                         const std::vector<Fingerprint>& fingerprints, PromptStrings* strings) {
  PythonLiterals literals = python_literals(python_source);
  for (const std::string& value : literals.values) {
    std::string plain = substitute(value, literals);
    std::string formatted = undo_braces(plain);
    for (const Fingerprint& print : fingerprints) {
      FixedText& text = strings->*print.text;
      if (!text.own) continue;
      if (!is_text(print.text, fingerprints, plain, &text)) {
        is_text(print.text, fingerprints, formatted, &text);
      }
    }
  }
}

PromptStrings load_prompt_strings(const std::string& model_dir, ChatFormat format,
                                  const std::vector<Fingerprint>& fingerprints) {
  PromptStrings strings = own_prompt_strings(format);
  if (fingerprints.empty()) return strings;

  std::vector<std::filesystem::path> sources;
  std::error_code error;
  std::filesystem::path folder = std::filesystem::path(model_dir) / "encoding";
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().extension() == ".py") sources.push_back(at->path());
  }
  std::sort(sources.begin(), sources.end());
  for (const auto& path : sources) find_prompt_strings(read_source(path), fingerprints, &strings);

  std::string missing;
  for (const Fingerprint& print : fingerprints) {
    std::string name = name_of(print.text);
    if (!(strings.*print.text).own || missing.find(name) != missing.npos) continue;
    missing += (missing.empty() ? "" : ", ") + name;
  }
  if (!missing.empty()) {
    strings.warning = fmt::format(
        "the official {} texts ({}) are not in {}/*.py: hadal's own wording is used, so copy the "
        "folder encoding of the model's repository there to have the prompts that it was trained "
        "on.",
        chat_format_title(format), missing, folder.string());
  }
  return strings;
}

PromptStrings load_prompt_strings(const std::string& model_dir, ChatFormat format) {
  return load_prompt_strings(model_dir, format, fingerprints_of(format));
}

}  // namespace hadal
