// The command line itself: help, version, unknown verbs and options.
#include "apps/program.h"

namespace hadal {
namespace {

const std::vector<std::string> kVerbs = {"run",     "chat", "serve", "logits", "render",
                                         "inspect", "plan", "bench", "kernels"};

TEST(Usage, HelpListsTheVerbsAndEachVerbItsOptions) {
  auto o = hadal_program({"--help"});
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.err, "");
  for (const auto& verb : kVerbs) {
    EXPECT_NE(o.out.find("\n  " + verb + " "), std::string::npos) << verb;
    auto help = hadal_program({verb, "--help"});
    EXPECT_EQ(help.status, 0) << verb;
    EXPECT_NE(help.out.find("Usage: hadal " + verb), std::string::npos) << help.out;
    EXPECT_NE(help.out.find("\nOptions:\n"), std::string::npos) << help.out;
  }
}

TEST(Usage, Version) {
  auto o = hadal_program({"--version"});
  EXPECT_EQ(o.status, 0);
  int major = -1, minor = -1, patch = -1;
  EXPECT_EQ(std::sscanf(o.out.c_str(), "hadal %d.%d.%d", &major, &minor, &patch), 3) << o.out;
}

TEST(Usage, WrongCommandLinesEndWithStatusTwo) {
  expect_refused(hadal_program({}), 2, "say what to do: run, chat");
  expect_refused(hadal_program({"walk"}), 2, "there is no verb 'walk', only run, chat");
  expect_refused(hadal_program({"--fast"}), 2, "unknown option --fast");
  for (const auto& verb : kVerbs)
    expect_refused(hadal_program({verb, "m", "--no-such-flag"}), 2, "");
  expect_refused(hadal_program({"run", "m", "x", "--fast"}), 2, "unknown option --fast");
  expect_refused(hadal_program({"run", "m", "two", "words"}), 2, "unexpected argument 'words'");
  expect_refused(hadal_program({"run"}), 2, "MODEL is required");
  expect_refused(hadal_program({"run", "m", "x", "--top-p", "much"}), 2, "--top-p = much");
  expect_refused(hadal_program({"run", "m", "x", "--numerics", "fast"}), 2, "--numerics");
  expect_refused(hadal_program({"run", "m", "x", "--stop"}), 2, "--stop");
  expect_refused(hadal_program({"logits", "m", "--out", "f"}), 2, "--ids is required");
}

TEST(Usage, AFullOutputIsAnError) {
  for (const char* verb : {"kernels", "inspect"}) {
    std::string command = std::string(HADAL_BINARY) + " " + verb;
    if (command.ends_with("inspect")) command += " " + kTinyV4 + " --json --tensors";
    FILE* pipe = popen((command + " 2>&1 >/dev/full").c_str(), "r");
    char line[512] = "";
    EXPECT_NE(std::fgets(line, sizeof line, pipe), nullptr);
    EXPECT_EQ(WEXITSTATUS(pclose(pipe)), 1);
    EXPECT_NE(std::string(line).find("standard output cannot be written"), std::string::npos)
        << line;
  }
}

}  // namespace
}  // namespace hadal
