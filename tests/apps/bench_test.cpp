// `hadal bench latency`: what it counts, not how fast it is.
#include <nlohmann/json.hpp>

#include "apps/program.h"

namespace hadal {
namespace {

TEST(Bench, CountsTokensAndBytesOfADummy) {
  auto o = hadal_program({"bench", "latency", "--dummy", kTinyV4 + "/config.json", "--prompt-len",
                          "8", "--output-len", "2", "--batch", "2", "--repeat", "1", "--threads",
                          "1", "--json"});
  ASSERT_EQ(o.status, 0) << o.err;
  auto json = nlohmann::json::parse(o.out);
  EXPECT_EQ(json["model_type"], "deepseek_v4");
  EXPECT_EQ(json["batch"], 2);
  EXPECT_EQ(json["threads"], 1);
  // The dummy has the bytes of the checkpoint that was made from the same config.
  std::ifstream index(kTinyV4 + "/model.safetensors.index.json");
  EXPECT_EQ(json["weight_bytes"], nlohmann::json::parse(index)["metadata"]["total_size"]);
  EXPECT_GT(json["step_weight_bytes"], 0);
  EXPECT_LT(json["step_weight_bytes"], json["weight_bytes"]);
  double step = json["decode_step_ms"].get<double>() * 1e-3;
  EXPECT_NEAR(json["decode_tokens_per_s"].get<double>() * step, 2, 1e-9);
  EXPECT_NEAR(json["step_read_bytes_per_s"].get<double>() * step,
              json["step_weight_bytes"].get<double>(), 1);
  EXPECT_NEAR(
      json["share_of_bandwidth"].get<double>(),
      json["step_read_bytes_per_s"].get<double>() / json["memory_read_bytes_per_s"].get<double>(),
      1e-9);
  EXPECT_GT(json["memory_buffer_bytes"], 0);
}

TEST(Bench, WrongInputsGetOneSentence) {
  expect_refused(hadal_program({"bench", "speed", kTinyV4}), 1, "there is no bench 'speed'");
  expect_refused(hadal_program({"bench", "latency"}), 1, "give either MODEL or --dummy");
  expect_refused(hadal_program({"bench", "latency", kTinyV4, "--dummy", "x"}), 1,
                 "give either MODEL or --dummy");
  expect_refused(hadal_program({"bench", "latency", kTinyV4, "--batch", "0"}), 1, "--batch is 0");
  expect_refused(hadal_program({"bench", "latency", kTinyV4, "--prompt-len", "5000"}), 1, "5064");
  expect_refused(hadal_program({"bench", "latency", "--dummy", "/no/such/config.json"}), 1,
                 "/no/such/config.json");
}

}  // namespace
}  // namespace hadal
