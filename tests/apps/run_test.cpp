// `hadal run` on the trained model: the reference's answers, every flag, and wrong inputs.
#include <nlohmann/json.hpp>
#include <set>

#include "apps/program.h"

namespace hadal {
namespace {

const std::string kQuestion =
    "Nora is 37 years old. Eli is 13 years older than Nora. How old will Eli be in 10 years?";

// The reference's output for the first prompt of this kind, without its end token.
std::string reference(const std::string& kind) {
  std::ifstream file(kTinyV4 + "/greedy_reference.json");
  for (const auto& entry : nlohmann::json::parse(file)) {
    if (entry["kind"] != kind) continue;
    std::string text = entry["output_text"];
    return text.substr(0, text.find("<｜end▁of▁sentence｜>"));
  }
  return "no entry";
}

std::string reference_prompt(const std::string& kind) {
  std::ifstream file(kTinyV4 + "/greedy_reference.json");
  for (const auto& entry : nlohmann::json::parse(file))
    if (entry["kind"] == kind) return entry["prompt"];
  return "no entry";
}

Outcome run(std::vector<std::string> flags, const std::string& input = "") {
  flags.insert(flags.begin(), {"run", kTinyV4});
  return hadal_program(flags, input);
}

// A greedy answer to kQuestion in exact numerics: the reference's.
Outcome ask(std::vector<std::string> flags) {
  for (const char* f : {"--temperature", "0", "--numerics", "exact"}) flags.push_back(f);
  flags.insert(flags.begin(), kQuestion);
  return run(flags);
}

TEST(Run, AnswersAsTheReferenceDoes) {
  auto o = ask({});
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.out, reference("chat") + "\n");
  EXPECT_NE(o.err.find("34 prompt tokens ("), std::string::npos) << o.err;
  EXPECT_NE(o.err.find(" 29 generated ("), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("tokens/s), ended by the model\n"), std::string::npos) << o.err;
}

TEST(Run, ThinkingStandsBetweenItsMarks) {
  auto o = ask({"--thinking"});
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.out, "<think>" + reference("think") + "\n");
}

TEST(Run, ThinkingIsDimOnATerminal) {
  Program p({"run", kTinyV4, kQuestion, "--thinking", "--temperature", "0", "--numerics", "exact"},
            /*terminal=*/true);
  auto o = p.finish();
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.out, "\033[2m37 + 13 = 50. 50 + 10 = 60.\033[0m\r\nThe answer is 60.\r\n#### 60\r\n");
}

TEST(Run, RawContinuesAPlainText) {
  std::string prompt = reference_prompt("5shot"), bos = "<｜begin▁of▁sentence｜>";
  ASSERT_TRUE(prompt.starts_with(bos));
  // The model goes on with questions of its own: the stop text, split over tokens, must cut them.
  std::vector<std::string> flags = {"--raw",         "--stop", "\nQuestion:", "--stop", "\n\n",
                                    "--temperature", "0",      "--numerics",  "exact"};
  std::string expected = reference("5shot");
  expected = expected.substr(0, expected.find("\n\n")) + "\n";
  auto with_text = flags;
  with_text.insert(with_text.begin(), prompt.substr(bos.size()));
  EXPECT_EQ(run(with_text).out, expected);
  // Standard input, without TEXT or with '-', and the newline that echo adds.
  EXPECT_EQ(run(flags, prompt.substr(bos.size())).out, expected);
  flags.insert(flags.begin(), "-");
  EXPECT_EQ(run(flags, prompt.substr(bos.size()) + "\n").out, expected);
  // The same with special tokens written out; no second begin-of-sentence token comes before them.
  flags[0] = prompt;
  flags.push_back("--parse-special");
  EXPECT_EQ(run(flags).out, expected);
}

TEST(Run, SpecialTokensInTheTextAreTextUnlessAskedFor) {
  // One token each when parsed; otherwise many.
  auto prompt_tokens = [](const Outcome& o) {
    return std::stoi(o.err.substr(o.err.rfind("hadal: ") + 7));
  };
  std::vector<std::string> flags = {"<｜User｜><｜User｜>", "--raw", "--max-tokens", "1"};
  EXPECT_GT(prompt_tokens(run(flags)), 5);
  flags.push_back("--parse-special");
  EXPECT_EQ(prompt_tokens(run(flags)), 3);
}

TEST(Run, StopTextIsNeverPrinted) {
  auto o = ask({"--stop", " 10 = 6"});
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.out, "37 + 13 = 50. 50 +\n");
  EXPECT_NE(o.err.find("ended at a stop text"), std::string::npos) << o.err;
  // In the reasoning too, and once more after it.
  EXPECT_EQ(ask({"--thinking", "--stop", ". 50"}).out, "<think>37 + 13 = 50\n");
  EXPECT_EQ(ask({"--thinking", "--stop", "answer"}).out,
            "<think>37 + 13 = 50. 50 + 10 = 60.</think>The \n");
}

TEST(Run, MaxTokensCuts) {
  auto o = ask({"--max-tokens", "3"});
  EXPECT_EQ(o.status, 0);
  EXPECT_NE(o.err.find(" 3 generated ("), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("cut at --max-tokens"), std::string::npos) << o.err;
  EXPECT_TRUE(reference("chat").starts_with(o.out.substr(0, o.out.size() - 1))) << o.out;
}

TEST(Run, TheContextEndsTheAnswer) {
  auto o = ask({"--ignore-eos", "--max-model-len", "80"});
  EXPECT_EQ(o.status, 0);
  EXPECT_NE(o.err.find(" 46 generated ("), std::string::npos) << o.err;  // 34 + 46 = 80
  EXPECT_NE(o.err.find("cut at the end of the context"), std::string::npos) << o.err;
}

TEST(Run, TopKOneAndTopPZeroAreArgmax) {
  for (std::vector<std::string> flags :
       {std::vector<std::string>{"--top-k", "1"}, {"--top-p", "0"}, {"--temperature", "1e-30"}}) {
    flags.insert(flags.begin(), {kQuestion, "--seed", "3", "--numerics", "exact"});
    EXPECT_EQ(run(flags).out, reference("chat") + "\n") << flags.back();
  }
}

TEST(Run, HugeTemperatureRunsAndTheSeedDecides) {
  auto out = [&](const char* temperature, const char* seed) {
    auto o = run({kQuestion, "--temperature", temperature, "--seed", seed, "--max-tokens", "20",
                  "--ignore-eos"});
    EXPECT_EQ(o.status, 0) << o.err;
    EXPECT_NE(o.err.find(std::string("seed ") + seed), std::string::npos) << o.err;
    return o.out;
  };
  EXPECT_EQ(out("1e6", "1"), out("1e6", "1"));
  EXPECT_NE(out("1e6", "1"), out("1e6", "2"));
  EXPECT_EQ(out("inf", "1"), out("inf", "1"));
  EXPECT_NE(out("inf", "1"), out("0.001", "1"));
}

TEST(Run, WithoutASeedAnswersDiffer) {
  std::set<std::string> seen;
  for (int i = 0; i < 3; ++i)
    seen.insert(run({kQuestion, "--temperature", "1e6", "--max-tokens", "20", "--ignore-eos"}).out);
  EXPECT_GT(seen.size(), 1u);
}

TEST(Run, PenaltiesChangeTheAnswer) {
  std::string plain = ask({"--max-tokens", "12"}).out;
  EXPECT_NE(ask({"--max-tokens", "12", "--presence-penalty", "50"}).out, plain);
  EXPECT_NE(ask({"--max-tokens", "12", "--frequency-penalty", "50"}).out, plain);
  EXPECT_NE(ask({"--max-tokens", "12", "--repetition-penalty", "50"}).out, plain);
}

TEST(Run, SystemMessageComesBeforeTheQuestion) {
  // The same prompt as one message list of `render`, counted in tokens.
  auto o = ask({"--system", "Be brief.", "--max-tokens", "1"});
  TemporaryFolder folder;
  nlohmann::json messages = {{{"role", "system"}, {"content", "Be brief."}},
                             {{"role", "user"}, {"content", kQuestion}}};
  auto ids = hadal_program(
      {"render", kTinyV4, "--ids", "--messages", folder.write("m.json", messages.dump())});
  size_t n = nlohmann::json::parse(ids.out).size();
  EXPECT_NE(o.err.find(std::to_string(n) + " prompt tokens"), std::string::npos) << o.err;
}

TEST(Run, LogprobsOfEachToken) {
  auto o = ask({"--logprobs", "2", "--max-tokens", "2"});
  ASSERT_EQ(o.status, 0);
  std::istringstream lines(o.out);
  std::string answer, empty, head, first, second, more;
  std::getline(lines, answer);
  std::getline(lines, empty);
  std::getline(lines, head);
  std::getline(lines, first);
  std::getline(lines, second);
  EXPECT_EQ(empty, "");
  EXPECT_FALSE(std::getline(lines, more));
  // The first reference ids are 31 and 35, and the greedy token is the best of the two best.
  int id = 0;
  float logprob = 1;
  ASSERT_EQ(std::sscanf(first.c_str(), "%d %f", &id, &logprob), 2) << first;
  EXPECT_EQ(id, 31);
  EXPECT_LE(logprob, 0);
  EXPECT_NE(first.find("\"3\"  [31 "), std::string::npos) << first;
  ASSERT_EQ(std::sscanf(second.c_str(), "%d %f", &id, &logprob), 2) << second;
  EXPECT_EQ(id, 35);
}

TEST(Run, GenerationConfigGivesTheDefaults) {
  TemporaryFolder folder;
  std::filesystem::copy(kTinyV4, folder / "m");
  auto answer = [&](const std::string& config, std::vector<std::string> flags) {
    folder.write("m/generation_config.json", config);
    flags.insert(flags.begin(), {"run", folder / "m", kQuestion, "--numerics", "exact"});
    return hadal_program(flags);
  };
  EXPECT_EQ(answer(R"({"do_sample": false, "temperature": 5})", {}).out, reference("chat") + "\n");
  EXPECT_EQ(answer(R"({"temperature": 5, "top_k": 1})", {}).out, reference("chat") + "\n");
  EXPECT_NE(answer(R"({"temperature": 1e6})", {"--max-tokens", "20", "--ignore-eos"}).out,
            reference("chat") + "\n");
  EXPECT_EQ(answer(R"({"temperature": 1e6})", {"--temperature", "0"}).out,
            reference("chat") + "\n");
  expect_refused(answer(R"({"temperature": "hot"})", {}), 1, "temperature is not a number");
  expect_refused(answer("[", {}), 1, "generation_config.json is not a JSON object");
}

TEST(Run, CtrlCEndsWithStatus130) {
  Program p({"run", kTinyV4, "count", "--ignore-eos", "--temperature", "inf"}, /*terminal=*/true);
  size_t start = p.wait_for("");
  while (start < 200) start = p.wait_for("", start + 1);  // the answer has begun
  p.interrupt();
  auto o = p.finish();
  EXPECT_EQ(o.status, 130);
  EXPECT_NE(o.err.find("interrupted"), std::string::npos) << o.err;
  EXPECT_TRUE(o.out.ends_with("\n"));
}

TEST(Run, WrongInputsGetOneSentence) {
  expect_refused(run({kQuestion, "--top-p", "1.5"}), 1, "top_p is 1.5");
  expect_refused(run({kQuestion, "--top-k", "-3"}), 1, "top_k is -3");
  expect_refused(run({kQuestion, "--temperature", "-1"}), 1, "temperature is -1");
  expect_refused(run({kQuestion, "--temperature", "nan"}), 1, "temperature is nan");
  expect_refused(run({kQuestion, "--repetition-penalty", "0"}), 1, "repetition_penalty is 0");
  expect_refused(run({kQuestion, "--max-tokens", "0"}), 1, "max_tokens is 0");
  expect_refused(run({kQuestion, "--logprobs", "100000"}), 1, "logprobs is 100000");
  expect_refused(run({kQuestion, "--logprobs", "-1"}), 1, "--logprobs");
  expect_refused(run({kQuestion, "--stop", ""}), 1, "--stop is empty");
  expect_refused(run({kQuestion, "--threads", "-2"}), 1, "--threads is -2");
  expect_refused(run({kQuestion, "--max-model-len", "-2"}), 1, "--max-model-len is -2");
  expect_refused(run({kQuestion, "--without", "no_such"}), 1, "there is no such kernel");
  expect_refused(run({kQuestion, "--without", "cpu_rms_norm"}), 1,
                 "no kernel is left for rms_norm: give fewer --without");
  expect_refused(run({kQuestion, "--chat-format", "v9"}), 1, "v9");
  expect_refused(run({kQuestion, "--raw", "--thinking"}), 1, "leave out");
  expect_refused(run({""}), 1, "the prompt is empty");
  expect_refused(run({}, "\n"), 1, "the prompt is empty");
  expect_refused(run({"--raw"}, ""), 1, "the prompt is empty");
}

TEST(Run, PromptBeyondTheContextNamesBothNumbers) {
  expect_refused(run({kQuestion, "--max-model-len", "34"}), 1,
                 "the prompt has 34 tokens, the context 34");
  EXPECT_EQ(run({kQuestion, "--max-model-len", "35"}).status, 0);
}

TEST(Run, WrongModelFolders) {
  TemporaryFolder folder;
  expect_refused(hadal_program({"run", folder / "none", "x"}), 1, "there is no folder");
  expect_refused(hadal_program({"run", folder.write("file", ""), "x"}), 1, "is no folder");
  std::filesystem::copy(kTinyV4, folder / "m");
  std::filesystem::remove(folder / "m/tokenizer.json");
  expect_refused(hadal_program({"run", folder / "m", "x"}), 1, "has no tokenizer.json");
  std::filesystem::copy(kTinyV4 + "/tokenizer.json", folder / "m/tokenizer.json");
  std::filesystem::remove(folder / "m/model-00002-of-00002.safetensors");
  expect_refused(hadal_program({"run", folder / "m", "x"}), 1, "model-00002-of-00002.safetensors");
  std::filesystem::remove(folder / "m/config.json");
  expect_refused(hadal_program({"run", folder / "m", "x"}), 1, "config.json");
}

}  // namespace
}  // namespace hadal
