// data/chat/NAME.json rendered must be NAME.txt (less its last newline). The expected files are
// outputs of the encoders' and templates' algorithms run as Python programs, with short stand-ins
// for the long English texts.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "text/chat_cases.h"

namespace hadal {
namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(EncodeGolden, EveryFile) {
  int cases = 0;
  for (auto& entry :
       std::filesystem::directory_iterator(std::string(HADAL_TEST_DATA) + "/../text/data/chat")) {
    if (entry.path().extension() != ".json") continue;
    std::filesystem::path expected = entry.path();
    expected.replace_extension(".txt");
    EXPECT_EQ(rendered(read(entry.path())) + "\n", read(expected)) << entry.path();
    ++cases;
  }
  EXPECT_GE(cases, 70);
}

// The trained models' prompts were made by their trainer, not by this encoder.
TEST(EncodeGolden, PromptsOfTheTrainedModels) {
  for (const char* model : {"tiny-v4", "tiny-v3.2"}) {
    std::string dir = std::string(HADAL_MODELS) + "/" + model;
    auto reference = parse_json(read(dir + "/greedy_reference.json"), dir);
    ASSERT_TRUE(reference.ok());
    auto format = chat_format_of_checkpoint(dir);
    ASSERT_TRUE(format.ok()) << format.error().message;
    int cases = 0;
    for (const JsonMember& m : reference.value().members) {
      const std::string& kind = m.value.find("kind")->text;
      const std::string& prompt = m.value.find("prompt")->text;
      if (kind != "chat" && kind != "think") continue;
      std::string question = prompt.substr(prompt.find("<｜User｜>") + 12);
      question = question.substr(0, question.find("<｜Assistant｜>"));
      JsonValue text;
      text.kind = JsonValue::Kind::kString;
      text.text = question;
      EXPECT_EQ(rendered(format.value(), kind == "think",
                         "[{\"role\": \"user\", \"content\": " + python_json(text) + "}]"),
                prompt);
      ++cases;
    }
    EXPECT_GT(cases, 10) << model;
  }
}

}  // namespace
}  // namespace hadal
