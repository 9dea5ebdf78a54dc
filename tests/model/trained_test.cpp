// The two trained models against their recorded greedy outputs (models/*/greedy_reference.json,
// made with transformers in float32), and their answers in release numerics.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/safetensors.h"
#include "model/runner.h"
#include "text/tokenizer.h"

namespace hadal {
namespace {

using nlohmann::json;

struct Trained {
  explicit Trained(const std::string& name)
      : folder(std::string(HADAL_MODELS) + "/" + name),
        config(parse_config(read_file(folder + "/config.json").value(), folder).value()),
        source(std::move(Checkpoint::open(folder)).value()),
        tokenizer(std::move(Tokenizer::load(folder + "/tokenizer.json")).value()) {}

  std::string folder;
  Config config;
  std::unique_ptr<Checkpoint> source;
  Tokenizer tokenizer;
};

// One generation among several that run side by side.
struct Lane {
  std::unique_ptr<Sequence> sequence;
  size_t job = 0;
  std::vector<int32_t> feed;  // tokens of the next step
  std::vector<int32_t> output;
};

struct Job {
  std::vector<int32_t> prompt, output;
  // Top-2 gap of the logits at each generated token.
  std::vector<float> gaps;
};

float top2_gap(const float* row, int64_t n) {
  float first = -1e30f, second = -1e30f;
  for (int64_t i = 0; i < n; ++i) {
    if (row[i] > first) {
      second = first;
      first = row[i];
    } else if (row[i] > second) {
      second = row[i];
    }
  }
  return first - second;
}

// Greedy outputs of all jobs, `width` sequences in each step, up to max_tokens or the end token.
void generate_all(Runner& runner, std::vector<Job>& jobs, size_t width, size_t max_tokens) {
  int64_t vocab = runner.config().vocab;
  std::vector<Lane> lanes(std::min(width, jobs.size()));
  size_t next = 0;
  auto start = [&](Lane& lane) {
    lane.sequence.reset();
    if (next == jobs.size()) return;
    lane.sequence = std::make_unique<Sequence>(runner.pool());
    lane.job = next++;
    lane.feed = jobs[lane.job].prompt;
  };
  for (Lane& lane : lanes) start(lane);
  for (;;) {
    std::vector<Runner::Part> parts;
    std::vector<Lane*> who;
    for (Lane& lane : lanes) {
      if (!lane.sequence) continue;
      parts.push_back({lane.sequence.get(), lane.feed});
      who.push_back(&lane);
    }
    if (parts.empty()) return;
    auto logits = runner.step(parts);
    int64_t row = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      row += static_cast<int64_t>(parts[i].ids.size());
      const float* last = logits.data() + (row - 1) * vocab;
      Job& job = jobs[who[i]->job];
      int32_t id = argmax(last, vocab);
      job.output.push_back(id);
      job.gaps.push_back(top2_gap(last, vocab));
      if (id == runner.config().eos_ids[0] || job.output.size() == max_tokens)
        start(*who[i]);
      else
        who[i]->feed = {id};
    }
  }
}

class TrainedTest : public testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  void SetUp() override {
    if (device() == "cuda" && !open_device("cuda").ok()) GTEST_SKIP() << "no CUDA device";
  }
  std::string model() const { return std::get<0>(GetParam()); }
  std::string device() const { return std::get<1>(GetParam()); }
};

TEST_P(TrainedTest, ReproducesTheGreedyReferenceInExactNumerics) {
  Trained m(model());
  json reference = json::parse(std::ifstream(m.folder + "/greedy_reference.json"));
  std::vector<Job> jobs;
  for (const json& r : reference) jobs.push_back({r["prompt_ids"], {}, {}});
  Runner runner(m.config, *m.source, Numerics::exact(), 640, 8, {}, 2, device());
  generate_all(runner, jobs, 8, 120);

  size_t equal = 0;
  for (size_t i = 0; i < jobs.size(); ++i) {
    std::vector<int32_t> want = reference[i]["output_ids"];
    const auto& got = jobs[i].output;
    auto [w, g] = std::ranges::mismatch(want, got);
    bool same = w == want.end();
    equal += same;
    if (same) continue;
    ASSERT_NE(g, got.end()) << "output " << i << " is cut short";
    EXPECT_LT(jobs[i].gaps[g - got.begin()], 1e-3f) << "output " << i << " deviates without a tie";
  }
  EXPECT_GE(double(equal), 0.98 * double(jobs.size())) << equal << " of " << jobs.size();
}

int64_t last_number(const std::string& text) {
  size_t at = text.rfind("#### ");
  return at == std::string::npos ? -1 : std::atoll(text.c_str() + at + 5);
}

TEST_P(TrainedTest, AnswersWordProblemsInReleaseNumerics) {
  Trained m(model());
  std::ifstream file(std::string(HADAL_TEST_DATA) + "/word_problems_test.jsonl");
  std::vector<Job> jobs;
  std::vector<int64_t> answers;
  for (std::string line; std::getline(file, line);) {
    json problem = json::parse(line);
    std::string prompt = "<｜begin▁of▁sentence｜><｜User｜>" +
                         problem["question"].get<std::string>() + "<｜Assistant｜></think>";
    jobs.push_back({m.tokenizer.encode(prompt, SpecialTokens::kParse), {}, {}});
    answers.push_back(last_number(problem["answer"]));
  }
  ASSERT_EQ(jobs.size(), 300u);
  Runner runner(m.config, *m.source, Numerics::release(), 256, 16, {}, 2, device());
  generate_all(runner, jobs, 16, 120);

  size_t correct = 0;
  for (size_t i = 0; i < jobs.size(); ++i)
    correct += last_number(m.tokenizer.decode(jobs[i].output, true)) == answers[i];
  EXPECT_GE(double(correct), 0.90 * double(jobs.size())) << correct << " of " << jobs.size();
  RecordProperty("correct", static_cast<int>(correct));
}

INSTANTIATE_TEST_SUITE_P(Models, TrainedTest,
                         testing::Combine(testing::Values("tiny-v4", "tiny-v3.2"),
                                          testing::Values("cpu", "cuda")),
                         [](const auto& info) {
                           std::string s =
                               std::string(std::get<1>(info.param)) + "_" + std::get<0>(info.param);
                           std::ranges::replace_if(
                               s, [](char c) { return c == '-' || c == '.'; }, '_');
                           return s;
                         });

}  // namespace
}  // namespace hadal
