// Random weights: they load for any config, are reproducible, and hold values a model can run on.
#include "model/dummy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/checkpoint_files.h"

namespace hadal {
namespace {

using namespace hadal::testing;

Config config_of(const std::string& folder) {
  auto config = parse_config(read_text(folder + "/config.json"), folder + "/config.json");
  EXPECT_TRUE(config.ok()) << config.error().message;
  return config.value();
}

TEST(Dummy, LoadsForEveryConfig) {
  ThreadPool threads(2);
  for (const auto& folder : all_checkpoints()) {
    Config config = config_of(folder);
    auto source = DummySource::make(config, 1, threads);
    ASSERT_TRUE(source.ok()) << source.error().message;
    std::string fault;
    if (config.family == Family::kV4) {
      auto w = load_v4_weights(config, *source.value());
      if (!w.ok()) fault = w.error().message;
    } else {
      auto w = load_v32_weights(config, *source.value());
      if (!w.ok()) fault = w.error().message;
    }
    EXPECT_EQ(fault, "") << folder;
  }
}

TEST(Dummy, BytesDependOnSeedAndNameAlone) {
  Config config = config_of(fixture("v4-tiny-yarn-fp8fp4"));
  ThreadPool one(1), three(3);
  auto a = std::move(DummySource::make(config, 1, one)).value();
  auto b = std::move(DummySource::make(config, 1, three)).value();
  auto c = std::move(DummySource::make(config, 2, one)).value();
  for (const auto& name : a->names()) {
    Tensor x = *a->find(name), y = *b->find(name), z = *c->find(name);
    EXPECT_EQ(std::memcmp(x.data, y.data, x.bytes()), 0) << name;
    if (x.bytes() < 16) continue;
    EXPECT_NE(std::memcmp(x.data, z.data, x.bytes()), 0) << name;
  }
}

// Rows of about unit length, no NaN code, distinct experts in a row.
TEST(Dummy, ValuesAreWhatAModelCanRunOn) {
  Config config = config_of(std::string(HADAL_MODELS) + "/tiny-v4");
  ThreadPool threads(2);
  auto source = std::move(DummySource::make(config, 3, threads)).value();
  V4Weights w = load_v4_weights(config, *source).value();
  auto row_length = [](const Weight& m) {
    double sum = 0;
    for (int64_t n = 0; n < m.n(); ++n) {
      for (int64_t k = 0; k < m.k(); ++k) {
        float v = weight_value(m, n, k);
        EXPECT_TRUE(std::isfinite(v));
        sum += static_cast<double>(v) * v;
      }
    }
    return std::sqrt(sum / static_cast<double>(m.n()));
  };
  const V4Layer& l = w.layers[2];
  std::vector<const Weight*> matrices = {&l.wq_a,           &l.wq_b,        &l.wo_b,
                                         &l.moe.gate[1],    &l.moe.down[7], &l.moe.router,
                                         &l.compressor.wkv, &w.head};
  for (const Weight* m : matrices) {
    double length = row_length(*m);
    EXPECT_GT(length, 0.5) << m->data.describe();
    EXPECT_LT(length, 2.0) << m->data.describe();
  }
  EXPECT_TRUE(l.moe.gate[1].fp4());
  EXPECT_TRUE(l.wq_a.fp8());
  const Tensor& table = w.layers[0].moe.table;
  for (int64_t t = 0; t < config.vocab; ++t) {
    EXPECT_NE(*table.at<const int64_t>(t, 0), *table.at<const int64_t>(t, 1));
  }
}

TEST(Dummy, TooLittleMemoryIsASentence) {
  std::string path = std::string(HADAL_TEST_DATA) + "/configs/deepseek-v4-pro.json";
  Config config = parse_config(read_text(path), path).value();
  ThreadPool threads(1);
  config.layers = 300;  // 4 TB
  config.compress_ratios.assign(300, 0);
  auto source = DummySource::make(config, 1, threads);
  ASSERT_FALSE(source.ok());
  for (const char* part : {"random weights", "GB free", "fewer layers"}) {
    EXPECT_NE(source.error().message.find(part), std::string::npos) << source.error().message;
  }
}

}  // namespace
}  // namespace hadal
