// config.json in both spellings, and the sentence for each thing that can be wrong with it.
#include "model/config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/checkpoint_files.h"

namespace hadal {
namespace {

using namespace hadal::testing;
using Json = nlohmann::json;

constexpr const char* kPath = "some/folder/config.json";

Json file_json(const std::string& path) { return Json::parse(read_text(path)); }
Json real(const std::string& name) {
  return file_json(std::string(HADAL_TEST_DATA) + "/configs/" + name + ".json");
}
Json tiny(const std::string& name) { return file_json(fixture(name) + "/config.json"); }

Config parsed(const Json& json) {
  auto config = parse_config(json.dump(), kPath);
  EXPECT_TRUE(config.ok()) << config.error().message;
  return config.ok() ? config.value() : Config{};
}

std::string fault(const Json& json) {
  auto config = parse_config(json.dump(), kPath);
  return config.ok() ? "" : config.error().message;
}

TEST(Config, V3) {
  Config c = parsed(real("deepseek-v3"));
  EXPECT_EQ(c.family, Family::kV3);
  EXPECT_EQ(c.vocab, 129280);
  EXPECT_EQ(c.hidden, 7168);
  EXPECT_EQ(c.layers, 61);
  EXPECT_EQ(c.draft_layers, 1);
  EXPECT_EQ(c.heads, 128);
  EXPECT_EQ(c.q_rank, 1536);
  EXPECT_EQ(c.kv_rank, 512);
  EXPECT_EQ(c.nope_dim, 128);
  EXPECT_EQ(c.rope_dim, 64);
  EXPECT_EQ(c.v_dim, 128);
  EXPECT_EQ(c.dense_layers, 3);
  EXPECT_EQ(c.dense_inter, 18432);
  EXPECT_EQ(c.experts, 256);
  EXPECT_EQ(c.experts_per_token, 8);
  EXPECT_EQ(c.shared_experts, 1);
  EXPECT_EQ(c.moe_inter, 2048);
  EXPECT_EQ(c.router_groups, 8);
  EXPECT_EQ(c.kept_groups, 4);
  EXPECT_EQ(c.route_scale, 2.5);
  EXPECT_EQ(c.score, Config::Score::kSigmoid);
  EXPECT_TRUE(c.normalize_weights);
  EXPECT_EQ(c.max_context, 163840);
  EXPECT_EQ(c.rope_theta, 10000);
  EXPECT_EQ(c.rope_scaling.factor, 40);
  EXPECT_EQ(c.rope_scaling.original_context, 4096);
  EXPECT_EQ(c.rope_scaling.beta_fast, 32);
  EXPECT_EQ(c.rope_scaling.beta_slow, 1);
  EXPECT_EQ(c.rope_scaling.mscale, 1);
  EXPECT_EQ(c.rope_scaling.mscale_all_dim, 1);
  EXPECT_EQ(c.bos_id, 0);
  EXPECT_EQ(c.eos_ids, std::vector<int64_t>{1});
  EXPECT_TRUE(c.fp8);
  EXPECT_FALSE(c.pow2_scales);
  EXPECT_FALSE(c.has_indexer(0));
}

TEST(Config, V31AndV32) {
  EXPECT_TRUE(parsed(real("deepseek-v3.1")).pow2_scales);
  Config c = parsed(real("deepseek-v3.2"));
  EXPECT_EQ(c.family, Family::kV32);
  EXPECT_EQ(c.index_heads, 64);
  EXPECT_EQ(c.index_dim, 128);
  EXPECT_EQ(c.index_topk, 2048);
  EXPECT_TRUE(c.pow2_scales);
  EXPECT_TRUE(c.has_indexer(60));
}

// No query rank, two shared experts, no YaRN, an eps that the latent norms do not share.
TEST(Config, Moonlight) {
  Config c = parsed(real("moonlight-16b"));
  EXPECT_EQ(c.q_rank, 0);
  EXPECT_EQ(c.shared_experts, 2);
  EXPECT_EQ(c.rope_theta, 50000);
  EXPECT_EQ(c.rope_scaling.factor, 1);
  EXPECT_EQ(c.rope_scaling.mscale, 0);
  EXPECT_EQ(c.norm_eps, 1e-5);
  EXPECT_EQ(c.latent_norm_eps, 1e-6);
  EXPECT_EQ(c.router_groups, 1);
  EXPECT_EQ(c.eos_ids, std::vector<int64_t>{163586});
  EXPECT_FALSE(c.fp8);
}

TEST(Config, V4Flash) {
  Config c = parsed(real("deepseek-v4-flash"));
  EXPECT_EQ(c.family, Family::kV4);
  EXPECT_EQ(c.layers, 43);
  EXPECT_EQ(c.draft_layers, 1);
  EXPECT_EQ(c.heads, 64);
  EXPECT_EQ(c.head_dim, 512);
  EXPECT_EQ(c.rope_dim, 64);
  EXPECT_EQ(c.q_rank, 1024);
  EXPECT_EQ(c.o_rank, 1024);
  EXPECT_EQ(c.o_groups, 8);
  EXPECT_EQ(c.window, 128);
  ASSERT_EQ(c.compress_ratios.size(), 43u);
  EXPECT_EQ(c.compress_ratios[1], 0);
  EXPECT_EQ(c.compress_ratios[2], 4);
  EXPECT_EQ(c.compress_ratios[41], 128);
  EXPECT_EQ(c.compress_ratios[42], 4);
  EXPECT_TRUE(c.has_indexer(2));
  EXPECT_FALSE(c.has_indexer(3));
  EXPECT_EQ(c.rope_theta, 10000);
  EXPECT_EQ(c.compress_rope_theta, 160000);
  EXPECT_EQ(c.rope_scaling.factor, 16);
  EXPECT_EQ(c.rope_scaling.original_context, 65536);
  EXPECT_EQ(c.rope_scaling.mscale, 0);
  EXPECT_EQ(c.hash_layers, 3);
  EXPECT_EQ(c.swiglu_limit, 10);
  EXPECT_EQ(c.streams, 4);
  EXPECT_EQ(c.sinkhorn_iters, 20);
  EXPECT_EQ(c.hc_eps, 1e-6);
  EXPECT_EQ(c.latent_norm_eps, 1e-6);
  EXPECT_EQ(c.score, Config::Score::kSqrtSoftplus);
  EXPECT_EQ(c.route_scale, 1.5);
  EXPECT_TRUE(c.fp8);
  EXPECT_TRUE(c.pow2_scales);
  EXPECT_FALSE(c.fp4_experts);  // not said; the tensors say it
}

TEST(Config, V4DsparkCountsItsStages) {
  Config c = parsed(real("deepseek-v4-flash-0731"));
  EXPECT_EQ(c.draft_layers, 3);
  EXPECT_EQ(c.draft_markov_rank, 256);
  EXPECT_TRUE(c.fp4_experts);
  EXPECT_EQ(parsed(real("deepseek-v4-pro-0813")).draft_markov_rank, 512);
}

// What transformers writes for the same V4 model: layer lists for ratios and hash layers, a factor
// for the rotated dims, two rope objects, dtype for torch_dtype.
Json transformers_v4(const Json& released) {
  Json j = released;
  std::vector<std::string> layers, mlps;
  int64_t n = released["num_hidden_layers"];
  for (int64_t l = 0; l < n; ++l) {
    int ratio = released["compress_ratios"][l];
    layers.push_back(ratio == 0   ? "sliding_attention"
                     : ratio == 4 ? "compressed_sparse_attention"
                                  : "heavily_compressed_attention");
    mlps.push_back(l < released["num_hash_layers"] ? "hash_moe" : "moe");
  }
  double factor = released["qk_rope_head_dim"].get<double>() / released["head_dim"].get<double>();
  Json compress = released["rope_scaling"].is_null() ? Json{{"rope_type", "default"}}
                                                     : released["rope_scaling"];
  if (compress.contains("type")) {
    compress["rope_type"] = compress["type"];
    compress.erase("type");
    compress["attention_factor"] = 1.0;
  }
  compress["rope_theta"] = released["compress_rope_theta"];
  compress["partial_rotary_factor"] = factor;
  for (const char* key : {"compress_ratios", "num_hash_layers", "qk_rope_head_dim", "rope_scaling",
                          "torch_dtype", "rope_theta", "compress_rope_theta"}) {
    j.erase(key);
  }
  j["dtype"] = "bfloat16";
  j["layer_types"] = layers;
  j["mlp_layer_types"] = mlps;
  j["compress_rates"] = {{"compressed_sparse_attention", 4}, {"heavily_compressed_attention", 128}};
  j["partial_rotary_factor"] = factor;
  j["rope_parameters"] = {{"main",
                           {{"rope_type", "default"},
                            {"rope_theta", released["rope_theta"]},
                            {"partial_rotary_factor", factor}}},
                          {"compress", compress}};
  return j;
}

void expect_same(const Config& a, const Config& b) {
  EXPECT_EQ(a.compress_ratios, b.compress_ratios);
  EXPECT_EQ(a.hash_layers, b.hash_layers);
  EXPECT_EQ(a.dense_layers, b.dense_layers);
  EXPECT_EQ(a.rope_dim, b.rope_dim);
  EXPECT_EQ(a.rope_theta, b.rope_theta);
  EXPECT_EQ(a.compress_rope_theta, b.compress_rope_theta);
  EXPECT_EQ(a.rope_scaling.factor, b.rope_scaling.factor);
  EXPECT_EQ(a.rope_scaling.original_context, b.rope_scaling.original_context);
  EXPECT_EQ(a.rope_scaling.beta_fast, b.rope_scaling.beta_fast);
  EXPECT_EQ(a.rope_scaling.beta_slow, b.rope_scaling.beta_slow);
  EXPECT_EQ(a.rope_scaling.mscale, b.rope_scaling.mscale);
  EXPECT_EQ(a.rope_scaling.mscale_all_dim, b.rope_scaling.mscale_all_dim);
  EXPECT_EQ(a.experts, b.experts);
  EXPECT_EQ(a.fp8, b.fp8);
}

TEST(Config, V4InTransformersSpelling) {
  for (const Json& released : {real("deepseek-v4-flash"), real("deepseek-v4-pro"), tiny("v4-tiny"),
                               tiny("v4-tiny-yarn-fp8fp4")}) {
    expect_same(parsed(released), parsed(transformers_v4(released)));
  }
}

TEST(Config, V4FlatRopeParametersAndSingleRates) {
  Json released = tiny("v4-tiny-yarn-fp8fp4"), j = transformers_v4(released);
  Json flat = released["rope_scaling"];
  flat["rope_type"] = "yarn";
  flat.erase("type");
  flat["rope_theta"] = 10000.0;
  j["rope_parameters"] = flat;
  j["compress_rope_theta"] = 160000;
  j.erase("compress_rates");
  j["compress_rate_csa"] = 4;
  j["compress_rate_hca"] = 128;
  expect_same(parsed(released), parsed(j));
  j["compress_rate_hca"] = 8;
  EXPECT_EQ(parsed(j).compress_ratios, (std::vector<int>{0, 4, 8, 4, 8}));
}

TEST(Config, V3InTransformersSpelling) {
  Json released = real("deepseek-v3.2"), j = released;
  j.erase("rope_theta");
  j.erase("rope_scaling");
  j.erase("torch_dtype");
  j.erase("first_k_dense_replace");
  j["dtype"] = "bfloat16";
  Json rope = released["rope_scaling"];
  rope["rope_type"] = "yarn";
  rope.erase("type");
  rope["rope_theta"] = 10000.0;
  j["rope_parameters"] = rope;
  std::vector<std::string> kinds(61, "sparse");
  std::fill_n(kinds.begin(), 3, "dense");
  j["mlp_layer_types"] = kinds;
  j["layer_types"] = std::vector<std::string>(61, "deepseek_sparse_attention");
  expect_same(parsed(released), parsed(j));
  j["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 50000}};
  EXPECT_EQ(parsed(j).rope_theta, 50000);
  EXPECT_EQ(parsed(j).rope_scaling.factor, 1);
}

TEST(Config, ListsOfEndTokens) {
  Json j = tiny("v3-tiny");
  j["eos_token_id"] = {1, 7};
  EXPECT_EQ(parsed(j).eos_ids, (std::vector<int64_t>{1, 7}));
  j["eos_token_id"] = Json::array();
  EXPECT_NE(fault(j).find("eos_token_id"), std::string::npos);
  j["eos_token_id"] = {1, 256};
  EXPECT_NE(fault(j).find("0 to 255"), std::string::npos) << fault(j);
  j.erase("eos_token_id");
  EXPECT_EQ(parsed(j).eos_ids, std::vector<int64_t>{1});
}

TEST(Config, ExpertDtypeMayStandInTheQuantisation) {
  Json j = real("deepseek-v4-flash");
  j["quantization_config"]["expert_dtype"] = "fp4";
  EXPECT_TRUE(parsed(j).fp4_experts);
}

TEST(Config, UnsupportedModels) {
  for (const char* type : {"deepseek_v41", "kimi_k2", "glm_moe_dsa", "deepseek_v2", "llama", ""}) {
    Json j = real("deepseek-v3");
    j["model_type"] = type;
    std::string message = fault(j);
    for (const char* part : {kPath, "deepseek_v3", "deepseek_v32", "deepseek_v4"}) {
      EXPECT_NE(message.find(part), std::string::npos) << message;
    }
    EXPECT_NE(message.find(std::string(1, '"').append(type).append(1, '"')), std::string::npos)
        << message;
  }
}

struct Wrong {
  const char* model;
  const char* pointer;  // of the value that is replaced
  Json value;           // discarded: the key is removed
  const char* part;     // of the sentence, beside path and key
};

const Json kGone = Json(Json::value_t::discarded);

std::vector<Wrong> wrong_shapes() {
  return {
      {"v3-tiny", "/model_type", kGone, "is missing"},
      {"v3-tiny", "/model_type", 3, "expected a string"},
      {"v3-tiny", "/hidden_size", kGone, "is missing"},
      {"v3-tiny", "/hidden_size", nullptr, "is missing"},
      {"v3-tiny", "/hidden_size", "128", "expected an integer"},
      {"v3-tiny", "/hidden_size", 128.0, "expected an integer"},
      {"v3-tiny", "/hidden_size", true, "expected an integer"},
      {"v3-tiny", "/hidden_size", 0, "from 1 to"},
      {"v3-tiny", "/hidden_size", -128, "from 1 to"},
      {"v3-tiny", "/hidden_size", 18446744073709551615u, "from 1 to"},
      {"v3-tiny", "/hidden_size", 1 << 30, "from 1 to"},
      {"v3-tiny", "/vocab_size", 0, "from 1 to"},
      {"v3-tiny", "/num_hidden_layers", 100000, "from 1 to"},
      {"v3-tiny", "/rms_norm_eps", 0, "expected a number"},
      {"v3-tiny", "/rms_norm_eps", "small", "expected a number"},
      {"v3-tiny", "/bos_token_id", 256, "0 to 255"},
      {"v3-tiny", "/norm_topk_prob", 1, "expected true or false"},
      {"v3-tiny", "/qk_rope_head_dim", 15, "even"},
      {"v3-tiny", "/num_key_value_heads", 4, "must equal num_attention_heads = 8"},
      {"v3-tiny", "/n_group", 3, "does not divide n_routed_experts = 16"},
      {"v3-tiny", "/n_group", 16, "fewer than two"},
      {"v3-tiny", "/topk_group", 5, "from 1 to 4"},
      {"v3-tiny", "/num_experts_per_tok", 9, "keeps only 8 experts"},
      {"v3-tiny", "/num_experts_per_tok", 17, "from 1 to 16"},
      {"v3-tiny", "/moe_layer_freq", 2, "must be 1"},
      {"v3-tiny", "/scoring_func", "softmax", "only with \"sigmoid\""},
      {"v3-tiny", "/topk_method", "greedy", "only with \"noaux_tc\""},
      {"v3-tiny", "/hidden_act", "gelu", "only with \"silu\""},
      {"v3-tiny", "/attention_bias", true, "only with false"},
      {"v3-tiny", "/tie_word_embeddings", true, "only with false"},
      {"v3-tiny", "/rope_theta", kGone, "is missing"},
      {"v3-tiny-yarn", "/rope_scaling/type", "linear", "only with \"yarn\""},
      {"v3-tiny-yarn", "/rope_scaling/factor", kGone, "is missing"},
      {"v3-tiny-yarn", "/rope_scaling/factor", 0.5, "from 1 to"},
      {"v3-tiny-yarn", "/rope_scaling/mscale", 0.5, "two equal numbers"},
      {"v3-tiny-yarn", "/rope_scaling/original_max_position_embeddings", kGone, "is missing"},
      {"v3-tiny-yarn", "/rope_scaling", 4, "expected an object"},
      {"v3-tiny-fp8", "/quantization_config/quant_method", "awq", "only with \"fp8\""},
      {"v3-tiny-fp8", "/quantization_config/fmt", "e5m2", "only with \"e4m3\""},
      {"v3-tiny-fp8", "/quantization_config/activation_scheme", "static", "\"dynamic\""},
      {"v3-tiny-fp8", "/quantization_config/weight_block_size", Json({32, 32}), "[128, 128]"},
      {"v3-tiny-fp8", "/quantization_config/scale_fmt", "log", "ue8m0"},
      {"v3-tiny-fp8", "/quantization_config", "fp8", "expected an object"},
      {"v32-tiny", "/q_lora_rank", nullptr, "is missing"},
      {"v32-tiny", "/index_n_heads", kGone, "is missing"},
      {"v32-tiny", "/index_head_dim", 48, "power of two"},
      {"v32-tiny", "/index_head_dim", 8, "at least qk_rope_head_dim = 16"},
  };
}

std::vector<Wrong> wrong_v4_shapes() {
  Json five = {0, 4, 128, 4, 0}, three = {0, 4, 3, 4};
  return {
      {"v4-tiny", "/o_groups", 3, "does not divide num_attention_heads = 8"},
      {"v4-tiny", "/qk_rope_head_dim", 66, "from 1 to 64"},
      {"v4-tiny", "/qk_rope_head_dim", 17, "even"},
      {"v4-tiny", "/num_key_value_heads", 8, "must be 1"},
      {"v4-tiny", "/compress_ratios", five, "has 5 entries, expected 4"},
      {"v4-tiny", "/compress_ratios", three, "holds 3"},
      {"v4-tiny-yarn-fp8fp4", "/compress_ratios", Json({4, 8, 16, 32, 64}), "5 different ratios"},
      {"v4-tiny", "/compress_ratios", Json({0, 4, -4, 4}), "from 0 to"},
      {"v4-tiny", "/compress_ratios", Json({0, 4, "4", 4}), "a list of"},
      {"v4-tiny", "/compress_ratios", kGone, "is missing"},
      {"v4-tiny", "/compress_rope_theta", kGone, "is missing"},
      {"v4-tiny", "/swiglu_limit", kGone, "is missing"},
      {"v4-tiny", "/swiglu_limit", -1, "expected a number"},
      {"v4-tiny", "/num_hash_layers", 5, "from 0 to 4"},
      {"v4-tiny", "/index_head_dim", 24, "power of two"},
      {"v4-tiny", "/index_topk", 0, "from 1 to"},
      {"v4-tiny", "/hc_mult", 0, "from 1 to"},
      {"v4-tiny", "/hc_sinkhorn_iters", 0, "from 1 to"},
      {"v4-tiny", "/sliding_window", 0, "from 1 to"},
      {"v4-tiny", "/scoring_func", "softmax", "only with"},
      {"v4-tiny-yarn-fp8fp4", "/expert_dtype", "int4", "expected fp4, fp8 or bf16"},
      {"v4-tiny-yarn-fp8fp4", "/rope_scaling/attention_factor", 1.2, "must be 1"},
  };
}

void expect_wrong(const Wrong& wrong) {
  SCOPED_TRACE(std::string(wrong.model) + wrong.pointer + " " + wrong.part);
  Json j = tiny(wrong.model);
  Json::json_pointer pointer(wrong.pointer);
  if (wrong.value.is_discarded()) {
    j.at(pointer.parent_pointer()).erase(pointer.back());
  } else {
    j[pointer] = wrong.value;
  }
  std::string message = fault(j);
  EXPECT_NE(message.find(kPath), std::string::npos) << message;
  EXPECT_NE(message.find(pointer.back()), std::string::npos) << message;
  EXPECT_NE(message.find(wrong.part), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

TEST(Config, WrongValuesAreSentences) {
  for (const auto& wrong : wrong_shapes()) expect_wrong(wrong);
  for (const auto& wrong : wrong_v4_shapes()) expect_wrong(wrong);
}

TEST(Config, WrongTransformersSpellings) {
  Json good = transformers_v4(tiny("v4-tiny"));
  auto with = [&](const char* pointer, const Json& value) {
    Json j = good;
    j[Json::json_pointer(pointer)] = value;
    return fault(j);
  };
  EXPECT_EQ(fault(good), "");
  EXPECT_NE(with("/layer_types/1", "full_attention").find("layer_types holds \"full_attention\""),
            std::string::npos);
  EXPECT_NE(with("/layer_types", Json({"sliding_attention"})).find("names 1 layers"),
            std::string::npos);
  EXPECT_NE(with("/mlp_layer_types/3", "hash_moe").find("mlp_layer_types must be"),
            std::string::npos);
  EXPECT_NE(with("/compress_rates/compressed_sparse_attention", 8).find("from 4 to 4"),
            std::string::npos);
  EXPECT_NE(with("/qk_rope_head_dim", 8).find("partial_rotary_factor asks for 16"),
            std::string::npos);
  EXPECT_NE(with("/compress_ratios", Json({0, 4, 128, 0})).find("different layers"),
            std::string::npos);
  EXPECT_NE(with("/rope_parameters/main/rope_type", "yarn").find("rope_parameters.main.rope_type"),
            std::string::npos);
  Json half = good;
  half["rope_parameters"].erase("compress");
  EXPECT_NE(fault(half).find("rope_parameters.compress is missing"), std::string::npos);
}

TEST(Config, WhatIsNoConfig) {
  for (const char* text : {"", "{", "nonsense", "[1,2]", "7", "null", "\"x\"", "{\"a\":1e999}",
                           "{\"model_type\":\"deepseek_v3\"", "\xff\xfe"}) {
    auto config = parse_config(text, kPath);
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_NE(config.error().message.find(kPath), std::string::npos) << config.error().message;
  }
}

}  // namespace
}  // namespace hadal
