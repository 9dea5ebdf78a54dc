// Binding checkpoints to the model's structs: the fixtures load under both spellings, and every way
// in which one can be broken gives a sentence that names file and tensor.
#include "model/weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/safetensors.h"
#include "model/checkpoint_files.h"
#include "model/tensor_names.h"

namespace hadal {
namespace {

using namespace hadal::testing;
namespace fs = std::filesystem;

Config config_of(const std::string& folder) {
  auto config = parse_config(read_text(folder + "/config.json"), folder + "/config.json");
  EXPECT_TRUE(config.ok()) << config.error().message;
  return config.value();
}

// "" where the checkpoint loads, else the sentence.
std::string load_fault(const Config& config, const TensorSource& source) {
  if (config.family == Family::kV4) {
    auto w = load_v4_weights(config, source);
    return w.ok() ? "" : w.error().message;
  }
  auto w = load_v32_weights(config, source);
  return w.ok() ? "" : w.error().message;
}

// A fixture in memory that a test changes and writes to a folder of its own.
class Altered {
 public:
  explicit Altered(const std::string& name)
      : config(config_of(fixture(name))), tensors(read_raw_folder(fixture(name))) {}

  std::string file() const { return folder_.file("model.safetensors"); }
  std::unique_ptr<Checkpoint> open() const {
    write_raw(file(), tensors);
    auto checkpoint = Checkpoint::open(folder_.path());
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    return std::move(checkpoint).value();
  }
  std::string fault() const { return load_fault(config, *open()); }

  template <class T>
  void set(const std::string& tensor, size_t index, T value) {
    ASSERT_TRUE(tensors.count(tensor)) << tensor;
    std::string& bytes = tensors[tensor].bytes;
    ASSERT_LE((index + 1) * sizeof(T), bytes.size());
    std::memcpy(bytes.data() + index * sizeof(T), &value, sizeof(T));
  }
  void cut(const std::string& tensor, std::vector<int64_t> shape) {
    RawTensor& t = tensors.at(tensor);
    int64_t before = 1, after = 1;
    for (int64_t d : t.shape) before *= d;
    for (int64_t d : shape) after *= d;
    t.bytes.resize(t.bytes.size() / before * after);
    t.shape = std::move(shape);
  }

  Config config;
  RawTensors tensors;

 private:
  TemporaryFolder folder_;
};

void expect_sentence(const std::string& message, std::initializer_list<std::string> parts) {
  for (const auto& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << "no \"" << part << "\" in: " << message;
  }
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

TEST(Weights, EveryCheckpointLoads) {
  for (const auto& folder : all_checkpoints()) {
    auto checkpoint = Checkpoint::open(folder);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    EXPECT_EQ(load_fault(config_of(folder), *checkpoint.value()), "") << folder;
  }
}

TEST(Weights, ProgressEndsAtTheTotal) {
  std::string folder = fixture("v4-tiny-yarn-fp8fp4");
  auto checkpoint = Checkpoint::open(folder).value()->bytes();
  int64_t last = 0, all = 0;
  auto source = std::move(Checkpoint::open(folder)).value();
  auto w = load_v4_weights(config_of(folder), *source, [&](int64_t done, int64_t total) {
    EXPECT_GT(done, last);
    last = done;
    all = total;
  });
  ASSERT_TRUE(w.ok());
  EXPECT_EQ(last, all);
  EXPECT_EQ(all, checkpoint);
}

// Views point at the right bytes: element by element against the file's bytes.
TEST(Weights, V4ViewsAreTheFilesBytes) {
  Altered a("v4-tiny-yarn-fp8fp4");
  auto source = a.open();
  V4Weights w = load_v4_weights(a.config, *source).value();
  auto same = [&](const Tensor& t, const std::string& name, size_t offset = 0) {
    const std::string& bytes = a.tensors.at(name).bytes;
    ASSERT_LE(offset + t.bytes(), bytes.size()) << name;
    EXPECT_EQ(std::memcmp(t.data, bytes.data() + offset, t.bytes()), 0) << name;
  };
  same(w.embed, "embed.weight");
  same(w.hc_head.scale, "hc_head_scale");
  const V4Layer& l = w.layers[3];
  same(l.moe.gate[5].data, "layers.3.ffn.experts.5.w1.weight");
  same(l.moe.up[5].data, "layers.3.ffn.experts.5.w3.weight");
  same(l.moe.down[5].data, "layers.3.ffn.experts.5.w2.weight");
  same(l.moe.down[5].scale, "layers.3.ffn.experts.5.w2.scale");
  same(l.indexer_compressor.ape, "layers.3.attn.indexer.compressor.ape");
  same(l.attn_hc.fn, "layers.3.hc_attn_fn");
  EXPECT_TRUE(l.moe.gate[0].fp4());
  EXPECT_EQ(l.moe.gate[0].k(), 256);
  // wo_a [64, 256]: two output groups of 32 rows.
  ASSERT_EQ(l.wo_a.size(), 2u);
  same(l.wo_a[1].data, "layers.3.attn.wo_a.weight", 32 * 256);
  EXPECT_EQ(l.wo_a[1].row0, 32);
  EXPECT_EQ(w.layers[0].moe.table.shape[0], 256);
  EXPECT_TRUE(w.layers[0].moe.bias.empty());
  EXPECT_TRUE(w.layers[2].moe.table.empty());
  EXPECT_TRUE(w.layers[2].indexer.wq_b.empty());
}

TEST(Weights, V32SlicesOfKvB) {
  Altered a("v3-tiny-fp8");  // 8 heads of 32 + 32 rows, latent 144
  auto source = a.open();
  V32Weights w = load_v32_weights(a.config, *source).value();
  const std::string& bytes = a.tensors.at("model.layers.1.self_attn.kv_b_proj.weight").bytes;
  const V32Layer& l = w.layers[1];
  ASSERT_EQ(l.w_uk.size(), 8u);
  for (int64_t h = 0; h < 8; ++h) {
    EXPECT_EQ(l.w_uk[h].row0, h * 64);
    EXPECT_EQ(l.w_uv[h].row0, h * 64 + 32);
    EXPECT_EQ(l.w_uv[h].n(), 32);
    EXPECT_EQ(std::memcmp(l.w_uk[h].data.data, bytes.data() + h * 64 * 144, 32 * 144), 0);
    EXPECT_EQ(std::memcmp(l.w_uv[h].data.data, bytes.data() + (h * 64 + 32) * 144, 32 * 144), 0);
  }
  // Value (row 2 of head 3's W_UV, column 143) by hand: row 226 lies in scale row 1, column 1.
  float scale;
  std::memcpy(&scale,
              a.tensors.at("model.layers.1.self_attn.kv_b_proj.weight_scale_inv").bytes.data() +
                  4 * (1 * 2 + 1),
              4);
  auto code = static_cast<uint8_t>(bytes[226 * 144 + 143]);
  EXPECT_EQ(weight_value(l.w_uv[3], 2, 143), e4m3_to_f32(code) * scale);
}

// The names of spec V4 2.5, written out for one layer.
TEST(Weights, TransformersNames) {
  auto name = [](const char* released) { return transformers_v4_names(released)[0]; };
  EXPECT_EQ(name("embed.weight"), "model.embed_tokens.weight");
  EXPECT_EQ(name("head.weight"), "lm_head.weight");
  EXPECT_EQ(name("norm.weight"), "model.norm.weight");
  EXPECT_EQ(name("hc_head_fn"), "model.hc_head.hc_fn");
  EXPECT_EQ(name("hc_head_scale"), "model.hc_head.hc_scale");
  EXPECT_EQ(name("layers.7.attn_norm.weight"), "model.layers.7.input_layernorm.weight");
  EXPECT_EQ(name("layers.7.ffn_norm.weight"), "model.layers.7.post_attention_layernorm.weight");
  EXPECT_EQ(name("layers.7.hc_attn_fn"), "model.layers.7.attn_hc.fn");
  EXPECT_EQ(name("layers.7.hc_ffn_scale"), "model.layers.7.ffn_hc.scale");
  EXPECT_EQ(name("layers.12.attn.wq_a.weight"), "model.layers.12.self_attn.q_a_proj.weight");
  EXPECT_EQ(name("layers.12.attn.wq_a.scale"),
            "model.layers.12.self_attn.q_a_proj.weight_scale_inv");
  EXPECT_EQ(name("layers.7.attn.q_norm.weight"), "model.layers.7.self_attn.q_a_norm.weight");
  EXPECT_EQ(name("layers.7.attn.wkv.weight"), "model.layers.7.self_attn.kv_proj.weight");
  EXPECT_EQ(name("layers.7.attn.wo_b.weight"), "model.layers.7.self_attn.o_b_proj.weight");
  EXPECT_EQ(name("layers.7.attn.attn_sink"), "model.layers.7.self_attn.sinks");
  EXPECT_EQ(name("layers.7.attn.compressor.ape"),
            "model.layers.7.self_attn.compressor.position_bias");
  EXPECT_EQ(name("layers.7.attn.compressor.norm.weight"),
            "model.layers.7.self_attn.compressor.kv_norm.weight");
  EXPECT_EQ(name("layers.7.attn.indexer.compressor.wgate.weight"),
            "model.layers.7.self_attn.compressor.indexer.gate_proj.weight");
  EXPECT_EQ(name("layers.7.attn.indexer.wq_b.scale"),
            "model.layers.7.self_attn.compressor.indexer.q_b_proj.weight_scale_inv");
  EXPECT_EQ(transformers_v4_names("layers.7.attn.indexer.weights_proj.weight"),
            (std::vector<std::string>{
                "model.layers.7.self_attn.compressor.indexer.scorer.weights_proj.weight",
                "model.layers.7.self_attn.compressor.indexer.weights_proj.weight"}));
  EXPECT_EQ(name("layers.7.ffn.gate.weight"), "model.layers.7.mlp.gate.weight");
  EXPECT_EQ(name("layers.7.ffn.gate.bias"), "model.layers.7.mlp.gate.e_score_correction_bias");
  EXPECT_EQ(name("layers.7.ffn.gate.tid2eid"), "model.layers.7.mlp.gate.tid2eid");
  EXPECT_EQ(name("layers.7.ffn.shared_experts.w2.weight"),
            "model.layers.7.mlp.shared_experts.down_proj.weight");
  EXPECT_EQ(name("layers.7.ffn.experts.31.w3.scale"),
            "model.layers.7.mlp.experts.31.up_proj.weight_scale_inv");
}

// Moves `from` of expert 0, 1, ... behind one another.
void pack(RawTensors& tensors, int64_t experts, const std::function<std::string(int64_t)>& name,
          RawTensor& out) {
  for (int64_t e = 0; e < experts; ++e) {
    auto node = tensors.extract(name(e));
    ASSERT_TRUE(node) << name(e);
    out.dtype = node.mapped().dtype;
    out.bytes += node.mapped().bytes;
    if (out.shape.empty()) out.shape = node.mapped().shape;
  }
}

// gate_up_proj and down_proj of one layer in place of its per-expert tensors.
void pack_layer(RawTensors& tensors, int64_t layer, int64_t experts, const std::string& stem,
                const char* gate, const char* up, const char* down, const std::string& end,
                const std::string& packed_end) {
  PackedExpertNames names = packed_expert_names(layer);
  std::string to = names.gate_up + packed_end, to_down = names.down + packed_end;
  RawTensor both, below;
  auto expert = [&](int64_t e, const char* m) { return stem + std::to_string(e) + m + end; };
  if (!tensors.count(expert(0, gate))) return;
  for (int64_t e = 0; e < experts; ++e) {
    for (const char* m : {gate, up}) {
      pack(
          tensors, 1, [&](int64_t) { return expert(e, m); }, both);
    }
  }
  pack(
      tensors, experts, [&](int64_t e) { return expert(e, down); }, below);
  tensors[to] = {both.dtype, {experts, 2 * both.shape[0], both.shape[1]}, both.bytes};
  tensors[to_down] = {below.dtype, {experts, below.shape[0], below.shape[1]}, below.bytes};
}

void to_transformers(Altered& a, bool packed, bool old_scorer) {
  RawTensors renamed;
  for (auto& [name, t] : a.tensors) {
    auto names = transformers_v4_names(name);
    renamed[old_scorer ? names.back() : names.front()] = std::move(t);
  }
  a.tensors = std::move(renamed);
  for (int64_t l = 0; packed && l < a.config.layers; ++l) {
    std::string stem = "model.layers." + std::to_string(l) + ".mlp.experts.";
    pack_layer(a.tensors, l, a.config.experts, stem, ".gate_proj", ".up_proj", ".down_proj",
               ".weight", "");
    pack_layer(a.tensors, l, a.config.experts, stem, ".gate_proj", ".up_proj", ".down_proj",
               ".weight_scale_inv", "_scale_inv");
  }
}

void expect_same_weight(const Weight& a, const Weight& b) {
  ASSERT_EQ(a.n(), b.n());
  ASSERT_EQ(a.k(), b.k());
  ASSERT_EQ(a.data.dtype, b.data.dtype);
  for (int64_t n = 0; n < a.n(); ++n) {
    for (int64_t k = 0; k < a.k(); ++k) {
      ASSERT_EQ(weight_value(a, n, k), weight_value(b, n, k)) << n << " " << k;
    }
  }
}

TEST(Weights, V4UnderTransformersNames) {
  for (const char* name : {"v4-tiny", "v4-odd-hidden", "v4-tiny-yarn-fp8fp4"}) {
    for (bool packed : {false, true}) {
      Altered released(name), converted(name);
      to_transformers(converted, packed, !packed);
      auto one = released.open(), two = converted.open();
      auto a = load_v4_weights(released.config, *one), b = load_v4_weights(converted.config, *two);
      ASSERT_TRUE(b.ok()) << b.error().message;
      for (int64_t l = 0; l < released.config.layers; ++l) {
        const V4Layer &x = a.value().layers[l], &y = b.value().layers[l];
        for (int64_t e = 0; e < released.config.experts; ++e) {
          expect_same_weight(x.moe.gate[e], y.moe.gate[e]);
          expect_same_weight(x.moe.up[e], y.moe.up[e]);
          expect_same_weight(x.moe.down[e], y.moe.down[e]);
        }
        expect_same_weight(x.wo_b, y.wo_b);
        expect_same_weight(x.moe.shared.down, y.moe.shared.down);
      }
    }
  }
}

TEST(Weights, V3PackedExperts) {
  for (const char* name : {"v3-tiny", "v3-tiny-fp8"}) {
    Altered released(name), converted(name);
    for (int64_t l = 0; l < converted.config.layers; ++l) {
      // The FP8 fixture's experts have 32 rows: two do not fill a scale block, so its scales cannot
      // be joined; only the plain one is packed.
      if (converted.config.fp8) continue;
      pack_layer(converted.tensors, l, converted.config.experts,
                 "model.layers." + std::to_string(l) + ".mlp.experts.", ".gate_proj", ".up_proj",
                 ".down_proj", ".weight", "");
    }
    auto one = released.open(), two = converted.open();
    auto a = load_v32_weights(released.config, *one), b = load_v32_weights(converted.config, *two);
    ASSERT_TRUE(b.ok()) << b.error().message;
    for (int64_t e = 0; e < released.config.experts; ++e) {
      expect_same_weight(a.value().layers[1].moe.up[e], b.value().layers[1].moe.up[e]);
      expect_same_weight(a.value().layers[1].moe.down[e], b.value().layers[1].moe.down[e]);
    }
  }
}

// Packed FP8: gate and up share scale blocks, the up rows begin in the middle of one.
TEST(Weights, PackedFp8ExpertsKeepTheirScaleRows) {
  Altered a("v3-tiny-fp8");
  int64_t layer = 1, experts = a.config.experts, inter = a.config.moe_inter;
  std::string stem = "model.layers.1.mlp.experts.";
  pack_layer(a.tensors, layer, experts, stem, ".gate_proj", ".up_proj", ".down_proj", ".weight",
             "");
  pack_layer(a.tensors, layer, experts, stem, ".gate_proj", ".up_proj", ".down_proj",
             ".weight_scale_inv", "_scale_inv");
  PackedExpertNames names = packed_expert_names(layer);
  // 64 rows are one block: of the two scale rows that packing made, keep gate's.
  RawTensor& scale = a.tensors.at(names.gate_up_scale);
  std::string kept;
  for (int64_t e = 0; e < experts; ++e) kept += scale.bytes.substr(e * 2 * 2 * 4, 2 * 4);
  scale = {"F32", {experts, 1, 2}, kept};
  auto source = a.open();
  auto w = load_v32_weights(a.config, *source);
  ASSERT_TRUE(w.ok()) << w.error().message;
  const Weight& up = w.value().layers[1].moe.up[3];
  EXPECT_EQ(up.row0, inter);
  float s;
  std::memcpy(&s, kept.data() + (3 * 2 + 1) * 4, 4);
  auto code = static_cast<uint8_t>(
      a.tensors.at(names.gate_up).bytes[((3 * 2 * inter) + inter + 7) * 256 + 200]);
  EXPECT_EQ(weight_value(up, 7, 200), e4m3_to_f32(code) * s);
}

TEST(Weights, PlainDtypesAreFineEverywhere) {
  for (const char* dtype : {"F32", "F16"}) {
    Altered a("v4-tiny");
    for (auto& [name, t] : a.tensors) {
      if (t.dtype != "BF16") continue;
      std::string bytes;
      for (size_t i = 0; i < t.bytes.size() / 2; ++i) {
        // Zeros are the same in every format; only the layout is at stake.
        bytes += std::string(std::string(dtype) == "F32" ? 4 : 2, '\0');
      }
      t = {dtype, t.shape, bytes};
    }
    EXPECT_EQ(a.fault(), "") << dtype;
  }
}

TEST(Weights, U8ScalesAreE8M0) {
  Altered a("v4-tiny-yarn-fp8fp4");
  for (auto& [name, t] : a.tensors) {
    if (t.dtype == "F8_E8M0") t.dtype = "U8";
  }
  EXPECT_EQ(a.fault(), "");
}

// Base checkpoints: FP8 experts, whose scales may be F32 (spec V4 2.2).
TEST(Weights, V4Fp8ExpertsWithEitherScale) {
  for (const char* dtype : {"F8_E8M0", "F32"}) {
    Altered a("v4-tiny-yarn-fp8fp4");
    for (auto& [name, t] : a.tensors) {
      if (name.find(".experts.") == name.npos) continue;
      bool down = name.find(".w2.") != name.npos;
      std::vector<int64_t> shape =
          down ? std::vector<int64_t>{256, 32} : std::vector<int64_t>{32, 256};
      if (name.ends_with(".weight")) {
        t = {"F8_E4M3", shape, std::string(32 * 256, '\x38')};
      } else {
        std::string one = std::string(dtype) == "F32" ? std::string("\0\0\x80\x3f", 4) : "\x7f";
        t = {dtype, down ? std::vector<int64_t>{2, 1} : std::vector<int64_t>{1, 2}, one + one};
      }
    }
    EXPECT_EQ(a.fault(), "") << dtype;
  }
}

TEST(Weights, DraftTensorsAreIgnored) {
  Altered v4("v4-tiny");
  v4.tensors["mtp.0.anything.weight"] = {"F32", {1}, std::string(4, '\0')};
  v4.tensors["mtp.12.x"] = {"I32", {1}, std::string(4, '\0')};
  EXPECT_EQ(v4.fault(), "");
  Altered v3("v3-tiny");
  v3.tensors["model.layers.3.eh_proj.weight"] = {"F32", {1}, std::string(4, '\0')};
  expect_sentence(v3.fault(), {v3.file(), "model.layers.3.eh_proj.weight", "not part of"});
  v3.config.draft_layers = 1;
  EXPECT_EQ(v3.fault(), "");
}

struct Fault {
  const char* what;
  const char* fixture;
  std::function<void(Altered&)> alter;
  std::vector<std::string> parts;  // of the sentence, beside the file's name
};

std::vector<Fault> presence_faults() {
  return {
      {"norm missing",
       "v4-tiny",
       [](Altered& a) { a.tensors.erase("layers.2.ffn_norm.weight"); },
       {"layers.2.ffn_norm.weight", "is missing", "BF16, F32 or F16 [256]"}},
      {"embedding missing",
       "v4-tiny",
       [](Altered& a) { a.tensors.erase("embed.weight"); },
       {"embed.weight is missing"}},
      {"expert missing",
       "v4-tiny",
       [](Altered& a) { a.tensors.erase("layers.1.ffn.experts.3.w2.weight"); },
       {"layers.1.ffn.experts.3.w2.weight is missing", "[256, 32]"}},
      {"weight without its scale",
       "v3-tiny-fp8",
       [](Altered& a) { a.tensors.erase("model.layers.0.mlp.up_proj.weight_scale_inv"); },
       {"model.layers.0.mlp.up_proj.weight_scale_inv is missing", "[3, 2]"}},
      {"FP4 weight without its scale",
       "v4-tiny-yarn-fp8fp4",
       [](Altered& a) { a.tensors.erase("layers.0.ffn.experts.0.w1.scale"); },
       {"layers.0.ffn.experts.0.w1.scale is missing", "F8_E8M0 [32, 8]"}},
      {"scale without its weight",
       "v4-tiny-yarn-fp8fp4",
       [](Altered& a) { a.tensors.erase("layers.0.attn.wkv.weight"); },
       {"layers.0.attn.wkv.weight is missing", "its scale layers.0.attn.wkv.scale is there"}},
      {"scale beside a plain weight",
       "v4-tiny",
       [](Altered& a) {
         a.tensors["layers.0.attn.wkv.scale"] = {"F8_E8M0", {1, 2}, "\x7f\x7f"};
       },
       {"layers.0.attn.wkv.scale is a scale", "BF16 [64, 256] and takes none"}},
      {"unknown tensor",
       "v4-tiny",
       [](Altered& a) { a.tensors["layers.4.attn_norm.weight"] = a.tensors["norm.weight"]; },
       {"layers.4.attn_norm.weight is not part of a deepseek_v4 model with 4 layers"}},
      {"too many experts",
       "v3-tiny",
       [](Altered& a) {
         a.config.experts = a.config.router_experts = a.config.experts_per_token = 8;
       },
       {"model.layers.1.mlp.gate.weight is BF16 [16, 128], expected", "[8, 128]"}},
      {"q_proj asked for",
       "v3-tiny",
       [](Altered& a) { a.config.q_rank = 0; },
       {"model.layers.0.self_attn.q_proj.weight is missing", "[384, 128]"}},
  };
}

std::vector<Fault> shape_faults() {
  return {
      {"norm too short",
       "v3-tiny",
       [](Altered& a) { a.cut("model.layers.1.input_layernorm.weight", {64}); },
       {"model.layers.1.input_layernorm.weight is BF16 [64], expected", "[128]"}},
      {"matrix turned",
       "v3-tiny",
       [](Altered& a) {
         a.cut("model.layers.0.self_attn.q_a_proj.weight", {128, 96});
       },
       {"model.layers.0.self_attn.q_a_proj.weight is BF16 [128, 96], expected", "[96, 128]"}},
      {"rank",
       "v3-tiny",
       [](Altered& a) {
         a.cut("model.norm.weight", {128, 1});
       },
       {"model.norm.weight is BF16 [128, 1], expected", "[128]"}},
      {"scale too small",
       "v3-tiny-fp8",
       [](Altered& a) {
         a.cut("model.layers.0.mlp.up_proj.weight_scale_inv", {2, 2});
       },
       {"model.layers.0.mlp.up_proj.weight_scale_inv is F32 [2, 2], expected", "[3, 2]"}},
      {"FP4 width",
       "v4-tiny-yarn-fp8fp4",
       [](Altered& a) {
         a.cut("layers.0.ffn.experts.0.w1.weight", {32, 64});
       },
       {"layers.0.ffn.experts.0.w1.weight is I8 [32, 64], expected I8 [32, 128]"}},
      {"FP4 where FP8 belongs",
       "v4-tiny-yarn-fp8fp4",
       [](Altered& a) { a.tensors["layers.0.attn.wkv.weight"].dtype = "I8"; },
       {"layers.0.attn.wkv.weight is I8 [64, 256], expected F8_E4M3, BF16, F32 or F16 [64, 256]"}},
      {"FP4 in V3",
       "v3-tiny-fp8",
       [](Altered& a) { a.tensors["model.layers.1.mlp.experts.0.up_proj.weight"].dtype = "I8"; },
       {"model.layers.1.mlp.experts.0.up_proj.weight is I8"}},
      {"F32 scale of FP4",
       "v4-tiny-yarn-fp8fp4",
       [](Altered& a) {
         RawTensor& t = a.tensors["layers.0.ffn.experts.0.w1.scale"];
         t = {"F32", t.shape, std::string(t.bytes.size() * 4, '\0')};
       },
       {"layers.0.ffn.experts.0.w1.scale is F32 [32, 8], expected F8_E8M0 [32, 8]"}},
      {"integers for a norm",
       "v4-tiny",
       [](Altered& a) {
         a.tensors["norm.weight"] = {"I32", {256}, std::string(1024, '\0')};
       },
       {"norm.weight is I32 [256], expected BF16, F32 or F16 [256]"}},
      {"FP8 router",
       "v4-tiny",
       [](Altered& a) {
         a.tensors["layers.1.ffn.gate.weight"] = {"F8_E4M3", {4, 256}, std::string(1024, '\0')};
       },
       {"layers.1.ffn.gate.weight is F8_E4M3 [4, 256], expected BF16"}},
      {"bf16 sink",
       "v4-tiny",
       [](Altered& a) {
         a.tensors["layers.1.attn.attn_sink"] = {"BF16", {8}, std::string(16, '\0')};
       },
       {"layers.1.attn.attn_sink is BF16 [8], expected F32 [8]"}},
      {"int32 table",
       "v4-tiny",
       [](Altered& a) {
         a.tensors["layers.0.ffn.gate.tid2eid"] = {"I32", {256, 2}, std::string(2048, '\0')};
       },
       {"layers.0.ffn.gate.tid2eid is I32 [256, 2], expected I64 [256, 2]"}},
      {"other vocabulary",
       "v4-tiny",
       [](Altered& a) { a.config.vocab = 255; },
       {"embed.weight is BF16 [256, 256], expected", "[255, 256]"}},
  };
}

std::vector<Fault> value_faults() {
  uint16_t bf16_nan = 0x7fc0, bf16_inf = 0xff80;
  return {
      {"NaN norm",
       "v4-tiny",
       [=](Altered& a) { a.set("norm.weight", 7, bf16_nan); },
       {"norm.weight holds nan at index 7"}},
      {"infinite norm",
       "v3-tiny",
       [=](Altered& a) { a.set("model.layers.1.self_attn.kv_a_layernorm.weight", 0, bf16_inf); },
       {"model.layers.1.self_attn.kv_a_layernorm.weight holds -inf"}},
      {"NaN bias",
       "v3-tiny",
       [](Altered& a) { a.set("model.layers.1.mlp.gate.e_score_correction_bias", 3, NAN); },
       {"model.layers.1.mlp.gate.e_score_correction_bias holds nan at index 3"}},
      {"NaN sink",
       "v4-tiny",
       [](Altered& a) { a.set("layers.0.attn.attn_sink", 1, NAN); },
       {"layers.0.attn.attn_sink holds nan"}},
      {"infinite mHC",
       "v4-tiny",
       [](Altered& a) { a.set("layers.0.hc_ffn_fn", 1000, INFINITY); },
       {"layers.0.hc_ffn_fn holds inf at index 1000"}},
      {"NaN ape",
       "v4-tiny",
       [](Altered& a) { a.set("layers.1.attn.compressor.ape", 0, NAN); },
       {"layers.1.attn.compressor.ape holds nan"}},
      {"NaN E8M0 scale",
       "v4-tiny-yarn-fp8fp4",
       [](Altered& a) { a.set("layers.4.ffn.experts.7.w2.scale", 255, uint8_t{255}); },
       {"layers.4.ffn.experts.7.w2.scale holds a NaN (byte 255)"}},
      {"NaN F32 scale",
       "v3-tiny-fp8",
       [](Altered& a) { a.set("model.layers.0.mlp.up_proj.weight_scale_inv", 2, NAN); },
       {"model.layers.0.mlp.up_proj.weight_scale_inv holds the scale nan"}},
      {"negative scale",
       "v3-tiny-fp8",
       [](Altered& a) { a.set("model.layers.0.mlp.up_proj.weight_scale_inv", 2, -1.0f); },
       {"model.layers.0.mlp.up_proj.weight_scale_inv holds the scale -1"}},
      {"expert beyond the last",
       "v4-tiny",
       [](Altered& a) { a.set("layers.0.ffn.gate.tid2eid", 201, int64_t{4}); },
       {"layers.0.ffn.gate.tid2eid holds expert 4 for token 100, expected 0 to 3"}},
      {"negative expert",
       "v4-tiny",
       [](Altered& a) { a.set("layers.0.ffn.gate.tid2eid", 0, int64_t{-1}); },
       {"layers.0.ffn.gate.tid2eid holds expert -1 for token 0"}},
      {"scale no power of two",
       "v3-tiny-fp8",
       [](Altered& a) { a.config.pow2_scales = true; },
       {"_scale_inv holds the scale ", "expected powers of two"}},
  };
}

TEST(Weights, EveryFaultIsASentence) {
  for (const auto& list : {presence_faults(), shape_faults(), value_faults()}) {
    for (const auto& fault : list) {
      SCOPED_TRACE(fault.what);
      Altered a(fault.fixture);
      fault.alter(a);
      std::string message = a.fault();
      expect_sentence(message, {a.file()});
      for (const auto& part : fault.parts) expect_sentence(message, {part});
    }
  }
}

TEST(Weights, PowerOfTwoScalesPass) {
  Altered a("v3-tiny-fp8");
  a.config.pow2_scales = true;
  for (auto& [name, t] : a.tensors) {
    if (!name.ends_with("_scale_inv")) continue;
    for (size_t i = 0; i < t.bytes.size() / 4; ++i) a.set(name, i, std::ldexp(1.0f, -9));
  }
  EXPECT_EQ(a.fault(), "");
}

TEST(Weights, PackedFaultsNameTheirTensor) {
  Altered a("v4-tiny");
  to_transformers(a, true, false);
  EXPECT_EQ(a.fault(), "");
  std::string down = packed_expert_names(1).down, gate_up = packed_expert_names(1).gate_up;
  Altered b("v4-tiny");
  to_transformers(b, true, false);
  b.tensors.erase(down);
  expect_sentence(b.fault(), {b.file(), down, "is missing", "[4, 256, 32]"});
  Altered c("v4-tiny");
  to_transformers(c, true, false);
  c.cut(gate_up, {4, 32, 256});
  expect_sentence(c.fault(), {c.file(), gate_up, "is BF16 [4, 32, 256], expected", "[4, 64, 256]"});
  Altered d("v4-tiny");
  to_transformers(d, true, false);
  d.tensors.erase("model.layers.0.self_attn.sinks");
  expect_sentence(d.fault(), {d.file(), "model.layers.0.self_attn.sinks is missing"});
}

// Where the fault lies in a sharded checkpoint, the sentence names that shard.
TEST(Weights, TheShardIsNamed) {
  TemporaryFolder folder;
  fs::copy(fixture("v3-tiny-fp8"), folder.path(), fs::copy_options::recursive);
  std::string shard = folder.file("model-00002-of-00002.safetensors");
  RawTensors tensors = read_raw(shard);
  uint16_t nan = 0x7fc0;
  std::memcpy(tensors.at("model.norm.weight").bytes.data(), &nan, 2);
  write_raw(shard, tensors);
  auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  expect_sentence(load_fault(config_of(folder.path()), *checkpoint.value()),
                  {shard, "model.norm.weight holds nan"});
}

}  // namespace
}  // namespace hadal
