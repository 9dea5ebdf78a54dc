// The report against published numbers: parameter counts, byte totals, cache tables of the real
// models (spec V4 2.1 and 7, spec V3.2 2.2, 3.6 and 9.1), and the fixtures' own headers.
#include "model/inspect.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "model/checkpoint_files.h"
#include "model/weights.h"

namespace hadal {
namespace {

using namespace hadal::testing;
namespace fs = std::filesystem;

std::string real_config(const std::string& name) {
  return std::string(HADAL_TEST_DATA) + "/configs/" + name + ".json";
}

ModelReport report_of(const std::string& name) {
  auto report = inspect_model(real_config(name));
  EXPECT_TRUE(report.ok()) << report.error().message;
  return report.value();
}

// The preview Flash's config.json does not say that its experts are FP4; its tensors do.
ModelReport flash_preview() {
  std::string path = real_config("deepseek-v4-flash");
  Config config = parse_config(read_text(path), path).value();
  config.fp4_experts = true;
  return inspect_model(config, nullptr, path);
}

double giga(int64_t n) { return static_cast<double>(n) * 1e-9; }
double gib(double n) { return n / 0x1p30; }

// The published counts fit only without the embedding table (spec V3.2 9.1).
int64_t active_without_embedding(const ModelReport& r) {
  return r.active_parameters - r.config.vocab * r.config.hidden;
}

using Counts = std::vector<ModelReport::Count>;

TEST(Inspect, V3Parameters) {
  ModelReport r = report_of("deepseek-v3");
  EXPECT_EQ(r.parameters, 671'026'419'200);
  EXPECT_EQ(r.expected_tensors, 91'991);
  EXPECT_NEAR(giga(r.active_parameters), 37.55, 0.005);
  EXPECT_NEAR(giga(active_without_embedding(r)), 36.63, 0.005);
  EXPECT_NEAR(giga(r.draft_parameters), 13.46, 0.005);
  EXPECT_NEAR(giga(r.parameters + r.draft_parameters), 684.49, 0.005);
  EXPECT_NEAR(giga(r.expected_bytes), 688.57, 0.01);
  EXPECT_EQ(r.attention_layers, (Counts{{"MLA", 61}}));
  EXPECT_EQ(r.feed_forward_layers, (Counts{{"dense", 3}, {"MoE", 58}}));
}

TEST(Inspect, V32Parameters) {
  ModelReport r = report_of("deepseek-v3.2");
  EXPECT_NEAR(giga(r.parameters), 671.88, 0.005);
  EXPECT_NEAR(giga(r.parameters + r.draft_parameters), 685.36, 0.005);
  EXPECT_EQ(r.expected_tensors, 92'425);
  EXPECT_NEAR(giga(r.expected_bytes), 689.47, 0.01);
}

TEST(Inspect, MoonlightParameters) {
  ModelReport r = report_of("moonlight-16b");
  EXPECT_NEAR(giga(r.parameters), 15.960, 0.0005);
  EXPECT_NEAR(giga(r.active_parameters), 2.91, 0.005);
  EXPECT_EQ(r.quantisation, "none");
}

TEST(Inspect, V4ByteTotalsToTheByte) {
  ModelReport flash = flash_preview();
  EXPECT_EQ(flash.expected_tensors, 69'187);
  EXPECT_EQ(flash.expected_bytes, 159'609'485'896);
  ModelReport flash_0731 = report_of("deepseek-v4-flash-0731");
  EXPECT_EQ(flash_0731.expected_tensors, 72'317);
  EXPECT_EQ(flash_0731.expected_bytes, 166'878'536'440);
  ModelReport pro = report_of("deepseek-v4-pro");
  EXPECT_EQ(pro.expected_tensors, 145'116);
  EXPECT_EQ(pro.expected_bytes, 864'704'792'696);
  ModelReport pro_0813 = report_of("deepseek-v4-pro-0813");
  EXPECT_EQ(pro_0813.expected_tensors, 149'782);
  EXPECT_EQ(pro_0813.expected_bytes, 892'727'580'904);
}

TEST(Inspect, V4ParametersAndLayers) {
  ModelReport flash = flash_preview();
  EXPECT_NEAR(giga(flash.parameters), 284, 0.5);
  EXPECT_NEAR(giga(active_without_embedding(flash)), 13, 0.5);
  EXPECT_EQ(flash.attention_layers, (Counts{{"window", 2}, {"ratio-4", 21}, {"ratio-128", 20}}));
  EXPECT_EQ(flash.feed_forward_layers,
            (Counts{{"MoE with hash router", 3}, {"MoE with learned router", 40}}));
  ModelReport pro = report_of("deepseek-v4-pro");
  EXPECT_NEAR(giga(pro.parameters), 1600, 50);
  EXPECT_NEAR(giga(active_without_embedding(pro)), 49, 0.5);
  EXPECT_EQ(pro.attention_layers, (Counts{{"ratio-4", 30}, {"ratio-128", 31}}));
}

struct CacheRow {
  const char* model;
  size_t format;
  double bytes_per_token, gib_short, gib_long;
};

TEST(Inspect, CacheTables) {
  const CacheRow rows[] = {
      {"deepseek-v4-flash", 0, 6880, 0.84, 6.72}, {"deepseek-v4-flash", 1, 3514.25, 0.43, 3.43},
      {"deepseek-v4-flash", 2, 3850, 0.47, 3.76}, {"deepseek-v4-pro", 0, 9848, 1.20, 9.62},
      {"deepseek-v4-pro", 1, 5031, 0.61, 4.91},   {"deepseek-v4-pro", 2, 5511, 0.67, 5.38},
      {"deepseek-v3", 0, 70272, 8.58, 68.63},     {"deepseek-v3", 1, 40016, 4.88, 39.08},
      {"deepseek-v3.2", 1, 48068, 5.87, 46.94},
  };
  for (const auto& row : rows) {
    const CacheCost cost = report_of(row.model).cache.at(row.format);
    // The tables round to whole bytes.
    EXPECT_NEAR(cost.bytes_per_token, row.bytes_per_token, 0.45) << row.model << cost.format;
    EXPECT_NEAR(gib(cost.bytes_at(131072)), row.gib_short, 0.005) << row.model << cost.format;
    EXPECT_NEAR(gib(cost.bytes_at(1048576)), row.gib_long, 0.0051) << row.model << cost.format;
  }
}

// Window rings and compressor states: Flash 5.4 / 3.1 + 11.64 MiB, Pro 7.6 / 4.35 + 17.84 MiB.
TEST(Inspect, FixedState) {
  auto mib = [](const char* model, size_t format) {
    return static_cast<double>(report_of(model).cache.at(format).bytes_fixed) / 0x1p20;
  };
  EXPECT_NEAR(mib("deepseek-v4-flash", 0), 5.375 + 11.64, 0.005);
  EXPECT_NEAR(mib("deepseek-v4-flash", 1), 3.065 + 11.64, 0.01);
  EXPECT_NEAR(mib("deepseek-v4-pro", 0), 7.625 + 17.84, 0.005);
  EXPECT_NEAR(mib("deepseek-v4-pro", 1), 4.35 + 17.84, 0.01);
  EXPECT_EQ(mib("deepseek-v3", 0), 0);
}

// The inventory of a config and the headers of the checkpoint that goes with it are the same thing.
TEST(Inspect, FixturesHoldExactlyTheExpectedTensors) {
  for (const auto& folder : all_checkpoints()) {
    auto report = inspect_model(folder);
    ASSERT_TRUE(report.ok()) << report.error().message;
    const ModelReport& r = report.value();
    RawTensors raw = read_raw_folder(folder);
    std::vector<TensorSpec> specs = expected_tensors(r.config);
    ASSERT_EQ(specs.size(), raw.size()) << folder;
    int64_t bytes = 0;
    for (const auto& spec : specs) {
      ASSERT_TRUE(raw.count(spec.name)) << folder << " " << spec.name;
      EXPECT_EQ(raw[spec.name].shape, spec.shape) << folder << " " << spec.name;
      EXPECT_EQ(raw[spec.name].dtype, dtype_name(spec.dtypes[0])) << folder << " " << spec.name;
      bytes += static_cast<int64_t>(raw[spec.name].bytes.size());
    }
    EXPECT_EQ(r.bytes, bytes);
    EXPECT_EQ(r.expected_bytes, bytes);
    EXPECT_TRUE(r.problems.empty()) << r.problems[0];
    EXPECT_TRUE(r.missing_files.empty());
  }
}

TEST(Inspect, MissingShardsAreListed) {
  TemporaryFolder folder;
  std::string from = fixture("v4-tiny-yarn-fp8fp4");
  for (const char* name :
       {"config.json", "model.safetensors.index.json", "model-00002-of-00002.safetensors"}) {
    fs::copy(from + "/" + name, folder.file(name));
  }
  auto report = inspect_model(folder.path());
  ASSERT_TRUE(report.ok()) << report.error().message;
  const ModelReport& r = report.value();
  std::string gone = folder.file("model-00001-of-00002.safetensors");
  EXPECT_EQ(r.missing_files, std::vector<std::string>{gone});
  EXPECT_EQ(r.files, std::vector<std::string>{folder.file("model-00002-of-00002.safetensors")});
  EXPECT_TRUE(r.problems.empty()) << r.problems[0];
  EXPECT_TRUE(r.config.fp4_experts);
  RawTensors all = read_raw_folder(from);
  EXPECT_EQ(r.tensors.size() + r.missing_tensors, all.size());
  EXPECT_NE(to_text(r, false).find(gone), std::string::npos);
  auto json = nlohmann::json::parse(to_json(r, true));
  EXPECT_EQ(json["missing_files"][0], gone);
  EXPECT_EQ(json["tensors"].size(), r.tensors.size());
}

TEST(Inspect, QuantisationIsReadFromTheTensors) {
  auto text = [](const std::string& name) { return inspect_model(fixture(name)).value(); };
  EXPECT_EQ(text("v4-tiny").quantisation, "none");
  EXPECT_EQ(text("v3-tiny-fp8").quantisation, "FP8 E4M3 in blocks of 128 x 128, F32 scales");
  EXPECT_EQ(text("v4-tiny-yarn-fp8fp4").quantisation,
            "FP8 E4M3 in blocks of 128 x 128, E8M0 scales; routed experts FP4 E2M1 in blocks of "
            "1 x 32, E8M0 scales");
  // The config of the preview Flash is silent about the experts, the tensors are not.
  TemporaryFolder folder;
  fs::copy(fixture("v4-tiny-yarn-fp8fp4"), folder.path(), fs::copy_options::recursive);
  auto config = nlohmann::json::parse(read_text(folder.file("config.json")));
  config.erase("expert_dtype");
  write_text(folder.file("config.json"), config.dump());
  ModelReport r = inspect_model(folder.path()).value();
  EXPECT_TRUE(r.config.fp4_experts);
  EXPECT_EQ(r.expected_bytes, r.bytes);
}

TEST(Inspect, ProblemsAreNamed) {
  TemporaryFolder folder;
  fs::copy(fixture("v4-tiny"), folder.path(), fs::copy_options::recursive);
  auto config = nlohmann::json::parse(read_text(folder.file("config.json")));
  config["q_lora_rank"] = 96;
  config["num_hidden_layers"] = 5;
  config["compress_ratios"] = {0, 4, 128, 4, 0};
  write_text(folder.file("config.json"), config.dump());
  ModelReport r = inspect_model(folder.path()).value();
  ASSERT_EQ(r.problems.size(), 2u);
  EXPECT_NE(r.problems[0].find("layers.4.attn_norm.weight"), std::string::npos) << r.problems[0];
  EXPECT_NE(r.problems[1].find("layers.0.attn.wq_a.weight is BF16 [64, 256]"), std::string::npos)
      << r.problems[1];
}

TEST(Inspect, AFolderWithoutTensorsIsAReportOfTheConfig) {
  TemporaryFolder folder;
  fs::copy(real_config("deepseek-v3"), folder.file("config.json"));
  auto report = inspect_model(folder.path());
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_NE(to_text(report.value(), true).find("688.57 GB"), std::string::npos)
      << to_text(report.value(), true);
  auto none = inspect_model(folder.path() + "/nowhere");
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("nowhere/config.json"), std::string::npos);
}

}  // namespace
}  // namespace hadal
