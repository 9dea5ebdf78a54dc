// The verbs that run no model: render, inspect, plan, kernels.
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/program.h"

namespace hadal {
namespace {

using Json = nlohmann::json;

const std::string kConfigs = std::string(HADAL_TEST_DATA) + "/configs/";

Json parsed(const Outcome& o) {
  EXPECT_EQ(o.status, 0) << o.err;
  Json json = Json::parse(o.out, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << o.out;
  return json;
}

Json file(const std::string& path) {
  std::ifstream in(path);
  return Json::parse(in);
}

// The question of a chat prompt that the reference answered.
std::string question_of(const std::string& prompt) {
  const std::string user = "<｜User｜>", assistant = "<｜Assistant｜>";
  size_t at = prompt.find(user) + user.size();
  return prompt.substr(at, prompt.find(assistant) - at);
}

TEST(Render, TextAndIdsAreThoseOfTheReference) {
  for (const std::string& model : {kTinyV4, kTinyV32}) {
    int compared = 0;
    for (const auto& entry : file(model + "/greedy_reference.json")) {
      bool think = entry["kind"] == "think";
      if (compared == 6 || (entry["kind"] != "chat" && !think)) continue;
      ++compared;
      Json messages = {{{"role", "user"}, {"content", question_of(entry["prompt"])}}};
      std::vector<std::string> command = {"render", model, "--messages", "-"};
      if (think) command.push_back("--thinking");
      auto plain = hadal_program(command, messages.dump());
      EXPECT_EQ(plain.out, entry["prompt"].get<std::string>() + "\n\n" +
                               std::to_string(entry["prompt_ids"].size()) +
                               " tokens: " + entry["prompt_ids"].dump() + "\n");
      command.push_back("--text");
      EXPECT_EQ(hadal_program(command, messages.dump()).out, entry["prompt"]);
      command.back() = "--ids";
      EXPECT_EQ(parsed(hadal_program(command, messages.dump())), entry["prompt_ids"]);
      command.back() = "--json";
      Json both = {{"text", entry["prompt"]}, {"ids", entry["prompt_ids"]}};
      EXPECT_EQ(parsed(hadal_program(command, messages.dump())), both);
    }
    EXPECT_EQ(compared, 6) << model;
  }
}

TEST(Render, FormatsDiffer) {
  TemporaryFolder folder;
  std::string m = folder.write("m.json", R"([{"role": "user", "content": "Hi"}])");
  auto text = [&](const char* format) {
    return hadal_program({"render", kTinyV4, "--messages", m, "--text", "--chat-format", format})
        .out;
  };
  EXPECT_EQ(text("v3"), "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜>");
  EXPECT_EQ(text("r1"), "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜><think>\n");
  EXPECT_EQ(text("v4-preview"), "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜></think>");
}

TEST(Render, WrongInputsGetOneSentence) {
  TemporaryFolder folder;
  std::string m = folder.write("m.json", R"([{"role": "user", "content": "Hi"}])");
  expect_refused(hadal_program({"render", kTinyV4, "--messages", folder / "none"}), 1, "none");
  expect_refused(hadal_program({"render", folder / "none", "--messages", m}), 1, "none");
  expect_refused(hadal_program({"render", kTinyV4, "--messages", "-"}, "{"), 1, "JSON");
  expect_refused(hadal_program({"render", kTinyV4, "--messages", "-"}, R"([{"role": "cat"}])"), 1,
                 "cat");
  expect_refused(hadal_program({"render", kTinyV4, "--messages", "-"}, "\"\xff\""), 1, "");
}

TEST(Inspect, CountsWhatTheIndexNames) {
  Json json = parsed(hadal_program({"inspect", kTinyV4, "--json", "--tensors"}));
  std::set<std::string> ours, index;
  for (const auto& t : json["tensors"]) ours.insert(t["name"]);
  Json map = file(kTinyV4 + "/model.safetensors.index.json");
  for (const auto& [name, shard] : map["weight_map"].items()) index.insert(name);
  EXPECT_EQ(ours, index);
  EXPECT_EQ(json["bytes"], map["metadata"]["total_size"]);
  EXPECT_EQ(json["model_type"], "deepseek_v4");
  EXPECT_EQ(json["missing_files"], Json::array());
  EXPECT_EQ(json["problems"], Json::array());
}

TEST(Inspect, WorksWithAMissingShardAndWithAConfigAlone) {
  TemporaryFolder folder;
  std::filesystem::copy(kTinyV4, folder / "m");
  std::filesystem::remove(folder / "m/model-00002-of-00002.safetensors");
  auto o = hadal_program({"inspect", folder / "m"});
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_NE(o.out.find("model-00002-of-00002.safetensors"), std::string::npos) << o.out;
  o = hadal_program({"inspect", kTinyV4 + "/config.json"});
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_NE(o.out.find("deepseek_v4"), std::string::npos) << o.out;
}

TEST(Inspect, WrongInputsGetOneSentence) {
  TemporaryFolder folder;
  expect_refused(hadal_program({"inspect", folder / "none"}), 1, "none");
  std::string config = folder.write("config.json", R"({"model_type": "llama"})");
  expect_refused(hadal_program({"inspect", config}), 1, "llama");
}

TEST(Plan, SaysWhatFits) {
  std::string v3 = kConfigs + "deepseek-v3.json";
  // 671 B parameters in FP8 fit eight devices of 141 GB and no single one.
  Json json = parsed(hadal_program({"plan", v3, "--devices", "8", "--memory", "141G", "--context",
                                    "16384", "--batch", "4", "--json"}));
  EXPECT_EQ(json["fits"], true);
  EXPECT_EQ(json["memory"], 141'000'000'000);
  EXPECT_EQ(json["context"], 16384);
  EXPECT_EQ(json["rows"].size(), 4u);
  EXPECT_EQ(json["rows"][0]["fits"], false);
  EXPECT_GT(json["rows"][0]["weights"], 600'000'000'000);
  auto o = hadal_program({"plan", v3, "--memory", "141G"});
  EXPECT_EQ(o.status, 0);
  EXPECT_NE(o.out.find("It does not fit on 1 device"), std::string::npos) << o.out;
  o = hadal_program({"plan", kTinyV4, "--memory", "1GiB"});
  EXPECT_NE(o.out.find("It fits on 1 device"), std::string::npos) << o.out;
}

TEST(Plan, WrongInputsGetOneSentence) {
  auto refused = [](std::vector<std::string> flags, const char* part) {
    flags.insert(flags.begin(), {"plan", kTinyV4});
    expect_refused(hadal_program(flags), 1, part);
  };
  refused({"--memory", "much"}, "much");
  refused({"--memory", "-1G"}, "-1G");
  refused({"--memory", "1G", "--devices", "3"}, "3 devices");
  refused({"--memory", "1G", "--context", "5000"}, "5000");
  refused({"--memory", "1G", "--batch", "0"}, "0 sequences");
}

TEST(Kernels, EachOpHasOneThatServesAndReasonsForTheOthers) {
  Json json = parsed(hadal_program({"kernels", "--json"}));
  std::map<std::string, int> chosen;
  for (const auto& k : json["kernels"]) {
    chosen[k["op"]] += k["chosen"].get<bool>() ? 1 : 0;
    EXPECT_EQ(k.contains("reason"), !k["chosen"].get<bool>());
    EXPECT_NE(k.value("reason", "none needed"), "");
  }
  EXPECT_GE(chosen.size(), 8u);
  for (const auto& [op, n] : chosen) EXPECT_EQ(n, 1) << op;
  auto table = hadal_program({"kernels"});
  EXPECT_EQ(table.status, 0);
  for (const auto& [op, n] : chosen)
    EXPECT_NE(table.out.find("\n" + op + " "), std::string::npos) << table.out;
}

TEST(Kernels, WithoutLeavesOneOutAndSaysSo) {
  Json all = parsed(hadal_program({"kernels", "--json"}));
  std::string left_out;
  for (const auto& k : all["kernels"]) {
    std::string name = k["kernel"];
    if (k["chosen"].get<bool>() && !name.starts_with("ref_")) left_out = name;
  }
  if (left_out.empty()) GTEST_SKIP() << "only reference kernels serve on this machine";
  int found = 0;
  Json rest = parsed(hadal_program({"kernels", "--json", "--without", left_out}));
  for (const auto& k : rest["kernels"]) {
    if (k["kernel"] != left_out) continue;
    ++found;
    EXPECT_EQ(k["chosen"], false);
    EXPECT_EQ(k["reason"], "left out by --without " + left_out);
  }
  EXPECT_EQ(found, 1);
}

TEST(Kernels, UnknownNamesAreRefused) {
  expect_refused(hadal_program({"kernels", "--without", "fast"}), 1, "no such kernel");
}

}  // namespace
}  // namespace hadal
