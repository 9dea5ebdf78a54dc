// The scanner of Python literals, and the search by fingerprint on made-up encoder files. The
// expected literals are what Python's own ast.literal_eval says; the digests are hashlib's.
#include "text/prompt_strings.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/hash.h"
#include "text/python_literals.h"

namespace hadal {
namespace {

namespace fs = std::filesystem;
using Part = Fingerprint::Part;
using Strings = std::vector<std::string>;

class ModelFolder {
 public:
  ModelFolder() {
    dir_ = fs::temp_directory_path() / ("hadal_prompt_strings_" + std::to_string(getpid()));
    fs::remove_all(dir_);
    fs::create_directories(dir_ / "encoding");
  }
  ~ModelFolder() { fs::remove_all(dir_); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ / name, std::ios::binary) << text;
  }
  std::string path() const { return dir_.string(); }

 private:
  fs::path dir_;
};

TEST(PythonLiterals, KindsOfLiterals) {
  EXPECT_EQ(python_literals(R"py(
a = "one"  # "not this"
b = 'it''s'
c = """two
lines"""
d = '''say "hi" and ''ho'''
e = r"raw\n" R'\''
f = f"x {name} {{y}}"
g = "x {name} {{y}}"
h = "a\tb\n\\ \"q\" \x41\u00e9\U0001F600\101 \z"
i = "con\
tinued"
j = b"bytes" 
k = rf"{{\d}}"
)py")
                .values,
            (Strings{"one", "its", "two\nlines", "say \"hi\" and ''ho", "raw\\n\\'", "x {name} {y}",
                     "x {name} {{y}}", "a\tb\n\\ \"q\" Aé😀A \\z", "continued", "bytes", "{\\d}"}));
}

TEST(PythonLiterals, Neighbours) {
  EXPECT_EQ(python_literals("a = (\"one \"\n     'two ' # no\n\n     \"three\")\n"
                            "b = \"x\" \\\n  \"y\"\n"
                            "\"p\"\n\"q\"\n"
                            "c = [\"r\", \"s\"]\n"
                            "d = {\"k\": (\"v\" \"w\"), \"l\": \"\"}\n"
                            "e = \"m\" + \"n\" + name + \"o\"\n"
                            "f = \"t\"; \"u\"\n")
                .values,
            (Strings{"one two three", "xy", "p", "q", "r", "s", "k", "vw", "l", "", "mn", "o", "t",
                     "u"}));
  // Python reads \r\n as \n everywhere.
  EXPECT_EQ(python_literals("a = \"\"\"1\r\n2\"\"\"\r\nb = (\"3\"\r\n\"4\")\r\n").values,
            (Strings{"1\n2", "34"}));
}

TEST(PythonLiterals, Names) {
  auto names = python_literals(
                   "a: str = \"x\"\nb = 'y'\nc = f(\"z\")\nd == \"w\"\nif e:\n  g = (\"u\" \"v\")\n"
                   "h(i=\"t\")\n")
                   .names;
  std::vector<std::pair<std::string, std::string>> expected = {{"a", "x"}, {"b", "y"}, {"g", "uv"}};
  EXPECT_EQ(names, expected);
}

TEST(PythonLiterals, AnythingIsRead) {
  for (const char* source : {"\"", "'''", "a = \"open\nb = 'x'", "\"\\", "\"\\x", "f\"{", "r\"\\",
                             "(((", ")))", "\xff\xfe\"\xff\"", "\"\\u12"}) {
    python_literals(source);
  }
  EXPECT_EQ(python_literals("a = \"open\nb = 'x'").values, (Strings{"open", "x"}));
}

// sha256 and length of the texts that the made-up files below spell out.
std::vector<Fingerprint> test_fingerprints() {
  return {
      // "T <｜DSML｜x> <think></think>\n"
      {&PromptStrings::tools, Part::kHead, 32,
       "eca2a82b86bf0a86db4f84cb04be8cbfb41de1c8702852e9c200cf4f2b31ec34"},
      // "\nend {x}\n"
      {&PromptStrings::tools, Part::kTail, 9,
       "bd741cd580e57b687e778d43ff52066922d0f818b24d8bc5913501180ed7cb13"},
      // "F:\n{schema}!"
      {&PromptStrings::response_format, Part::kWhole, 12,
       "ad4818dc732e2afda7430e9f3ac0b887ca6f42e42c9cb1dabc22c74359a51d08"},
      // "Effort \"a\" — x\n\n"
      {&PromptStrings::effort_a, Part::kWhole, 18,
       "d904feb6affad79276490dc3da4fbe7db6ddd4923ac25ecf98a7c37eb877490d"},
  };
}

constexpr const char* kEncoder = R"py(
"""A module's doc string with {tool_schemas}."""
dsml_token: str = "｜DSML｜"
block_name = 'x'
DECOY = "T <{dsml_token}y> <think></think>\n{tool_schemas}\nend {{x}}\n"
TOOLS = """T <{dsml_token}{block_name}> {thinking_start_token}{thinking_end_token}
{tool_schemas}
end {{x}}
"""
FORMAT = (
    "F:\n"  # the head
    "{schema}!"
)
EFFORTS = {"low": "", "high": ("Effort \"a\" "
                               '\u2014 x\n\n')}
)py";

TEST(PromptStrings, FoundByFingerprint) {
  ModelFolder folder;
  folder.write("encoding/a_other.py", "x = 'nothing here'\n");
  folder.write("encoding/encoder.py", kEncoder);
  folder.write("encoding/readme.txt", "\"F:\\n{schema}!\"");
  PromptStrings s = load_prompt_strings(folder.path(), ChatFormat::kV4Preview, test_fingerprints());
  EXPECT_EQ(s.warning, "");
  EXPECT_FALSE(s.tools.own);
  EXPECT_EQ(s.tools.head, "T <｜DSML｜x> <think></think>\n");
  EXPECT_EQ(s.tools.tail, "\nend {x}\n");
  EXPECT_FALSE(s.response_format.own);
  EXPECT_EQ(s.response_format.head, "F:\n");
  EXPECT_EQ(s.response_format.tail, "!");
  EXPECT_FALSE(s.effort_a.own);
  EXPECT_EQ(s.effort_a.head, "Effort \"a\" — x\n\n");
  EXPECT_TRUE(s.effort_b.own);  // no fingerprint asked for it
}

TEST(PromptStrings, WholeTemplateInAnFString) {
  const char* source =
      "D = '｜DSML｜'\nT = f\"T <{D}x> <think></think>\\n{tool_schemas}\\nend {{x}}\\n\"\n";
  std::vector<Fingerprint> whole = {
      {&PromptStrings::tools, Part::kWhole, 55,
       "84df9cff3df5925f4b3ac9002feccf1b3672046451568aec1f18991064bd1978"}};
  PromptStrings s = own_prompt_strings(ChatFormat::kV32);
  find_prompt_strings(source, whole, &s);
  EXPECT_FALSE(s.tools.own);
  EXPECT_EQ(s.tools.head, "T <｜DSML｜x> <think></think>\n");
  EXPECT_EQ(s.tools.tail, "\nend {x}\n");
}

TEST(PromptStrings, OneWarningNamesWhatIsMissing) {
  ModelFolder folder;
  std::string no_tail = kEncoder;
  no_tail.replace(no_tail.find("end {{x}}\n\"\"\""), 3, "eng");
  folder.write("encoding/encoder.py", no_tail);
  PromptStrings s = load_prompt_strings(folder.path(), ChatFormat::kV4Preview, test_fingerprints());
  EXPECT_TRUE(s.tools.own);
  EXPECT_EQ(s.tools.head, own_prompt_strings(ChatFormat::kV4Preview).tools.head);
  EXPECT_FALSE(s.response_format.own);
  EXPECT_EQ(s.warning, "the official V4 preview texts (tools) are not in " + folder.path() +
                           "/encoding/*.py: hadal's own wording is used, so copy the folder "
                           "encoding of the model's repository there to have the prompts that it "
                           "was trained on.");

  s = load_prompt_strings(folder.path() + "/none", ChatFormat::kV4_0731);
  EXPECT_NE(s.warning.find("(tools, response format, reasoning effort, maximum reasoning effort)"),
            std::string::npos);
  s = load_prompt_strings(folder.path() + "/none", ChatFormat::kV32);
  EXPECT_NE(s.warning.find("(tools, response format)"), std::string::npos);
}

TEST(PromptStrings, FormatsWithoutOfficialTexts) {
  EXPECT_EQ(load_prompt_strings("/nonexistent", ChatFormat::kV3).warning, "");
  EXPECT_EQ(load_prompt_strings("/nonexistent", ChatFormat::kR1).warning, "");
  EXPECT_NE(load_prompt_strings("/nonexistent", ChatFormat::kV31).warning, "");
}

// Our own wording must not be the official one, and keeps the wire format's marks.
TEST(PromptStrings, OwnWordingHasTheSkeleton) {
  for (ChatFormat format : {ChatFormat::kV32, ChatFormat::kV4Preview, ChatFormat::kV4_0731}) {
    PromptStrings s = own_prompt_strings(format);
    std::string block = format == ChatFormat::kV32 ? "function_calls" : "tool_calls";
    for (const std::string& mark :
         {"<｜DSML｜" + block + ">\n", "</｜DSML｜" + block + ">\n",
          std::string("<｜DSML｜invoke name=\"$TOOL_NAME\">\n"),
          std::string("<｜DSML｜parameter name=\"$PARAMETER_NAME\" string=\"true|false\">"),
          std::string("</｜DSML｜parameter>\n"), std::string("</｜DSML｜invoke>\n")}) {
      EXPECT_NE(s.tools.head.find(mark), std::string::npos) << mark;
    }
    EXPECT_EQ(s.tools.head.substr(0, 10), "## Tools\n\n");
    for (const Fingerprint& print : fingerprints_of(format)) {
      EXPECT_TRUE((s.*print.text).own);
      EXPECT_NE(sha256_hex((s.*print.text).head), print.sha256);
    }
  }
}

}  // namespace
}  // namespace hadal
