// `hadal chat`: several turns from a pipe and at a terminal, what a turn reads anew, Ctrl-C.
#include "apps/program.h"

namespace hadal {
namespace {

const std::string kQuestion =
    "Nora is 37 years old. Eli is 13 years older than Nora. How old will Eli be in 10 years?";
const std::string kAnswer = "37 + 13 = 50. 50 + 10 = 60.\n#### 60\n";

std::vector<std::string> greedy(std::vector<std::string> flags = {}) {
  flags.insert(flags.begin(), {"chat", kTinyV4, "--temperature", "0", "--numerics", "exact"});
  return flags;
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

TEST(Chat, AnswersLinesOfAPipe) {
  auto o = hadal_program(greedy(), kQuestion + "\n\n/reset\n" + kQuestion);
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_EQ(o.out, kAnswer + kAnswer);
}

TEST(Chat, ATurnReadsOnlyWhatIsNew) {
  auto o = hadal_program(greedy(), kQuestion + "\n" + kQuestion + "\n/quit\nnot read\n");
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_EQ(count(o.err, " prompt tokens ("), 2u) << o.err;
  // 34 prompt tokens and 29 generated; the last of these, the end token, was never fed: 62 held.
  EXPECT_NE(o.err.find("hadal: 34 prompt tokens ("), std::string::npos) << o.err;
  EXPECT_NE(o.err.find(" prompt tokens (62 cached, "), std::string::npos) << o.err;
}

TEST(Chat, ThinkingDropsItsReasoningAndReadsAgain) {
  auto o = hadal_program(greedy({"--thinking"}), kQuestion + "\n" + kQuestion + "\n");
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_TRUE(o.out.starts_with("<think>37 + 13 = 50. 50 + 10 = 60.</think>The answer is 60.\n"))
      << o.out;
  EXPECT_EQ(count(o.out, "<think>"), 2u);
  EXPECT_EQ(count(o.err, "cached"), 0u) << o.err;
}

TEST(Chat, SecondTurnEqualsTheSamePromptAtOnce) {
  // What a reused cache answers is what a fresh one does.
  auto two = hadal_program(greedy(), kQuestion + "\nHow old is Nora?\n");
  ASSERT_TRUE(two.out.starts_with(kAnswer));
  std::string raw = "<｜User｜>" + kQuestion + "<｜Assistant｜></think>" +
                    kAnswer.substr(0, kAnswer.size() - 1) +
                    "<｜end▁of▁sentence｜><｜User｜>How old is Nora?<｜Assistant｜></think>";
  auto one = hadal_program({"run", kTinyV4, raw, "--raw", "--parse-special", "--temperature", "0",
                            "--numerics", "exact"});
  EXPECT_EQ(two.out.substr(kAnswer.size()), one.out);
}

TEST(Chat, AQuestionBeyondTheContextIsRefusedAndForgotten) {
  std::string words;
  for (int i = 0; i < 200; ++i) words += "years ";
  auto o = hadal_program(greedy({"--max-model-len", "100"}), words + "\n" + kQuestion + "\n");
  EXPECT_EQ(o.status, 1);
  EXPECT_NE(o.err.find(", the context 100"), std::string::npos) << o.err;
  EXPECT_EQ(o.out, kAnswer);
}

TEST(Chat, LongLinesAndUnicodeArriveWhole) {
  std::string line;
  while (line.size() < 9000) line += "é日本語🙂 ";
  auto o = hadal_program(greedy({"--max-model-len", "50"}), line + "\n");
  // Too long for the context, and all of it counted: at least one token for three bytes.
  EXPECT_EQ(o.status, 1);
  size_t at = o.err.find("the prompt has ");
  ASSERT_NE(at, std::string::npos) << o.err;
  EXPECT_GT(std::stoi(o.err.substr(at + 15)), 3000);
}

class Terminal : public testing::Test {
 protected:
  explicit Terminal(std::vector<std::string> flags = greedy()) : program_(flags, true) {
    program_.wait_for("> ");
  }
  Program program_;
};

TEST_F(Terminal, EditsALineLongerThanTheSystemsOwn) {
  // 2,000 characters (5,000 bytes) that are taken back one by one, then a question with a slip in
  // it.
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "日é";
  program_.type(text + std::string(2000, '\x7f') + "wrong\x15" + kQuestion + " oops\x17\x7f\n");
  size_t at = program_.wait_for("#### 60");
  program_.wait_for("> ", at);
  program_.type("\x04");
  auto o = program_.finish();
  EXPECT_EQ(o.status, 0);
  EXPECT_NE(o.err.find("hadal: 34 prompt tokens"), std::string::npos) << o.err;
}

TEST_F(Terminal, APastedTextOfSeveralLinesIsOneQuestion) {
  program_.type("\033[200~" + kQuestion + "\r\nand\033[201~\033[D\n");
  program_.wait_for(" prompt tokens", 0, true);
  program_.type("/quit\n");
  auto o = program_.finish();
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(count(o.err, " prompt tokens"), 1u) << o.err;
}

TEST_F(Terminal, CtrlCAtThePromptClearsALineAndThenLeaves) {
  program_.type("half a quest");
  size_t at = program_.wait_for("half a quest");
  program_.interrupt();
  program_.wait_for("> ", at);
  program_.interrupt();
  EXPECT_EQ(program_.finish().status, 130);
}

class EndlessTerminal : public Terminal {
 protected:
  EndlessTerminal() : Terminal({"chat", kTinyV4, "--ignore-eos", "--temperature", "inf"}) {}
};

TEST_F(EndlessTerminal, CtrlCStopsTheAnswerAndNotTheProgram) {
  program_.type("count\n");
  size_t at = program_.wait_for("count");
  while (at < 200) at = program_.wait_for("", at + 1);
  program_.interrupt();
  program_.wait_for("interrupted", 0, true);
  program_.type("/quit\n");
  EXPECT_EQ(program_.finish().status, 0);
}

}  // namespace
}  // namespace hadal
