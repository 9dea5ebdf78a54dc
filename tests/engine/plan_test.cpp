// Plans against arithmetic done by hand on the spec's tables, against the models' own scratch, and
// the sentences for nonsense.
#include "engine/plan.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/threads.h"
#include "cache/layout.h"
#include "model/checkpoint_files.h"
#include "model/dummy.h"
#include "model/model.h"

namespace hadal {
namespace {

using namespace hadal::testing;

Config config_at(const std::string& path) {
  auto config = parse_config(read_text(path), path);
  EXPECT_TRUE(config.ok()) << config.error().message;
  return config.value();
}

Config real_config(const std::string& name) {
  return config_at(std::string(HADAL_TEST_DATA) + "/configs/" + name + ".json");
}

Plan plan_of(const Config& config, int devices, const char* memory, int64_t context,
             int64_t batch) {
  auto plan = make_plan(config, devices, parse_memory(memory).value(), context, batch);
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  return plan.value();
}

TEST(ParseMemory, Units) {
  auto bytes = [](const char* text) { return parse_memory(text).value(); };
  EXPECT_EQ(bytes("141G"), 141'000'000'000);
  EXPECT_EQ(bytes("141GB"), 141'000'000'000);
  EXPECT_EQ(bytes("141 gb"), 141'000'000'000);
  EXPECT_EQ(bytes("96GiB"), 103'079'215'104);
  EXPECT_EQ(bytes("1.5T"), 1'500'000'000'000);
  EXPECT_EQ(bytes("0.5KiB"), 512);
  EXPECT_EQ(bytes("640M"), 640'000'000);
}

TEST(ParseMemory, NonsenseIsNamed) {
  for (const char* text : {"", "G", "12", "-3G", "0G", "nanG", "infT", "1e300T", "12Q", "12GiBs",
                           "12 34G", "twelve", "0x10G", "1.5.5G"}) {
    auto bytes = parse_memory(text);
    ASSERT_FALSE(bytes.ok()) << text << " " << bytes.value();
    EXPECT_NE(bytes.error().message.find(std::string(1, '"').append(text).append(1, '"')),
              std::string::npos);
    EXPECT_NE(bytes.error().message.find("141G"), std::string::npos);
  }
}

// One device holds the main model: 673.15 GB (spec V3.2 9.2).
TEST(Plan, V3WeightsOnOneDevice) {
  Plan plan = plan_of(real_config("deepseek-v3"), 8, "141G", 4096, 1);
  EXPECT_NEAR(static_cast<double>(plan.rows[0].weights) * 1e-9, 673.15, 0.01);
  EXPECT_FALSE(plan.fits(plan.rows[0]));
  // 84 to 86 GB and the replicated parts on each of eight.
  EXPECT_NEAR(static_cast<double>(plan.rows[3].weights) * 1e-9, 85.5, 1.5);
  EXPECT_TRUE(plan.fits(plan.chosen()));
}

// Split by hand: what each of 8 devices holds of a V3 layer with experts, from the table in 2.2.
TEST(Plan, V3SplitByHand) {
  Config c = real_config("deepseek-v3");
  c.layers = 1;
  c.dense_layers = 0;
  c.draft_layers = 0;
  int64_t vocabulary = 2 * 129280 / 8 * 7168 * 2, norms = (3 * 7168 + 1536 + 512) * 2;
  int64_t q_a = 1536 * 7168 + 12 * 56 * 4, kv_a = 576 * 7168 + 5 * 56 * 4;
  int64_t q_b = 3072 * 1536 + 24 * 12 * 4, kv_b = 4096 * 512 + 32 * 4 * 4;
  int64_t o = 7168 * 2048 + 56 * 16 * 4, router = 256 * 7168 * 2 + 256 * 4;
  int64_t expert = 3 * (2048 * 7168 + 16 * 56 * 4);
  int64_t shared = 3 * (256 * 7168 + 2 * 56 * 4);
  int64_t sum = vocabulary + norms + q_a + kv_a + q_b + kv_b + o + router + 32 * expert + shared;
  EXPECT_EQ(plan_of(c, 8, "141G", 4096, 1).chosen().weights, sum);
}

// The same for a ratio-4 layer of V4-Flash on 4 devices, from the table in V4 2.2 and rules in 2.4.
TEST(Plan, V4SplitByHand) {
  Config c = real_config("deepseek-v4-flash");
  c.fp4_experts = true;
  c.layers = 1;
  c.draft_layers = 0;
  c.hash_layers = 0;
  c.compress_ratios = {4};
  int64_t sum = 2 * 129280 / 4 * 4096 * 2 + 4096 * 2 + (4 * 16384 + 4 + 1) * 4;  // top level
  sum += 2 * 4096 * 2 + 2 * (24 * 16384 + 24 + 3) * 4 + 16 * 4;            // norms, mHC, sinks
  sum += 1024 * 4096 + 8 * 32 + 512 * 4096 + 4 * 32 + (1024 + 512) * 2;    // wq_a, wkv, norms
  sum += 8192 * 1024 + 64 * 8 + 2048 * 4096 + 16 * 32;                     // wq_b, wo_a
  sum += 4096 * 2048 + 32 * 16;                                            // wo_b, by columns
  sum += 2 * 1024 * 4096 * 2 + 4 * 1024 * 4 + 512 * 2;                     // compressor
  sum += 2048 * 1024 + 16 * 8 + 16 * 4096 * 2;                             // indexer
  sum += 2 * 256 * 4096 * 2 + 4 * 256 * 4 + 128 * 2;                       // its compressor
  sum += 256 * 4096 * 2 + 256 * 4;                                         // router
  sum += 64 * (2 * (2048 * 2048 + 2048 * 128) + 4096 * 1024 + 4096 * 64);  // experts
  sum += 3 * (2048 * 4096 + 16 * 32);                                      // shared expert
  EXPECT_EQ(plan_of(c, 4, "141G", 4096, 1).chosen().weights, sum);
}

TEST(Plan, CacheIsTheEnginesOwnAndOnEveryDevice) {
  // V3: 1152 bytes a token and layer in bf16, 61 layers.
  Plan v3 = plan_of(real_config("deepseek-v3"), 8, "141G", 131072, 4);
  for (const auto& row : v3.rows) EXPECT_EQ(row.cache, int64_t{4} * 131072 * 61 * 1152);
  // V4-Flash grows by 6880 bytes a token in bf16; rings and compressor rows are less than 20 MiB.
  Config flash = real_config("deepseek-v4-flash");
  int64_t shorter = plan_of(flash, 1, "141G", 131072, 1).rows[0].cache;
  int64_t longer = plan_of(flash, 1, "141G", 1048576, 1).rows[0].cache;
  EXPECT_EQ(longer - shorter, int64_t{1048576 - 131072} * 6880);
  EXPECT_LT(shorter - int64_t{131072} * 6880, 20 << 20);
}

TEST(Plan, FitsExactlyUpToTheMemory) {
  Config c = real_config("deepseek-v4-flash-0731");
  Plan plan = plan_of(c, 4, "141G", 131072, 16);
  int64_t need = plan.chosen().total();
  EXPECT_TRUE(plan.fits(plan.chosen()));
  EXPECT_TRUE(make_plan(c, 4, need, 131072, 16).value().fits(plan.chosen()));
  Plan less = make_plan(c, 4, need - 1, 131072, 16).value();
  EXPECT_FALSE(less.fits(less.chosen()));
  // The largest batch that is offered fits, one more does not.
  int64_t most = plan.chosen().max_batch;
  ASSERT_GT(most, 16);
  Plan full = plan_of(c, 4, "141G", 131072, most + 1);
  EXPECT_GT(full.chosen().weights + full.chosen().cache + plan.chosen().scratch, plan.memory);
}

TEST(Plan, WhatDoesNotDivideIsSaid) {
  Config c = config_at(fixture("v4-odd-hidden") + "/config.json");  // 4 heads, 4 groups, 4 experts
  Plan plan = plan_of(c, 8, "1G", 1024, 1);
  EXPECT_TRUE(plan.rows[2].possible());
  EXPECT_EQ(plan.rows[3].obstacles,
            (std::vector<std::string>{"4 heads", "4 experts", "4 output groups"}));
  EXPECT_FALSE(plan.fits(plan.rows[3]));
  EXPECT_NE(to_text(plan).find("4 heads, 4 experts, 4 output groups"), std::string::npos);
  // Columns are cut between scale blocks only.
  Config fp8 = config_at(fixture("v3-tiny-fp8") + "/config.json");  // o_proj [256, 256]
  EXPECT_TRUE(plan_of(fp8, 1, "1G", 1024, 1).rows[0].possible());
  auto obstacles = plan_of(fp8, 4, "1G", 1024, 1).rows[2].obstacles;
  EXPECT_EQ(obstacles[0], "256 columns of o_proj (in FP8 blocks of 128)");
  // TP 8 is fine for every released model.
  for (const char* name :
       {"deepseek-v3", "deepseek-v3.2", "deepseek-v4-flash", "deepseek-v4-pro"}) {
    for (const auto& row : plan_of(real_config(name), 8, "141G", 4096, 1).rows) {
      EXPECT_TRUE(row.possible()) << name << " " << row.devices << " " << row.obstacles[0];
    }
  }
}

// The formula and what the model allocates: never less, at most a third more.
TEST(Plan, ScratchFollowsTheModels) {
  for (const std::string& folder :
       {std::string(HADAL_MODELS) + "/tiny-v4", std::string(HADAL_MODELS) + "/tiny-v3.2"}) {
    Config c = config_at(folder + "/config.json");
    ThreadPool threads(1);
    auto source = DummySource::make(c, 1, threads);
    ASSERT_TRUE(source.ok()) << source.error().message;
    auto model = make_model(c, *source.value(), Numerics::release(), {512, 4096, 1});
    ASSERT_TRUE(model.ok()) << model.error().message;
    auto real = static_cast<double>(model.value()->scratch_bytes());
    auto planned = static_cast<double>(plan_of(c, 1, "1G", 4096, 1).rows[0].scratch);
    EXPECT_GE(planned, real) << folder;
    EXPECT_LE(planned, real * 1.34) << folder;
  }
}

TEST(Plan, NonsenseIsASentence) {
  Config c = real_config("deepseek-v3");
  auto fault = [&](int devices, int64_t memory, int64_t context, int64_t batch) {
    auto plan = make_plan(c, devices, memory, context, batch);
    return plan.ok() ? std::string() : plan.error().message;
  };
  EXPECT_NE(fault(3, 1, 1, 1).find("3 devices"), std::string::npos);
  EXPECT_NE(fault(0, 1, 1, 1).find("1, 2, 4 or 8"), std::string::npos);
  EXPECT_NE(fault(1, 1, 163841, 1).find("1 to 163840"), std::string::npos);
  EXPECT_NE(fault(1, 1, 0, 1).find("a context of 0"), std::string::npos);
  EXPECT_NE(fault(1, 1, 1, 0).find("a batch of 0"), std::string::npos);
  EXPECT_NE(fault(1, -5, 1, 1).find("memory"), std::string::npos);
  EXPECT_EQ(fault(1, 1, 1, 1), "");
}

TEST(Plan, TextAndJsonSayTheSame) {
  Plan plan = plan_of(real_config("deepseek-v4-flash-0731"), 1, "141G", 131072, 8);
  auto json = nlohmann::json::parse(to_json(plan));
  ASSERT_EQ(json["rows"].size(), 4u);
  EXPECT_EQ(json["fits"], false);
  EXPECT_EQ(json["rows"][1]["fits"], true);
  EXPECT_EQ(json["rows"][1]["weights"], plan.rows[1].weights);
  EXPECT_NE(to_text(plan).find("It does not fit on 1 device(s); it does on 2."), std::string::npos)
      << to_text(plan);
}

}  // namespace
}  // namespace hadal
