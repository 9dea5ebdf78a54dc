// The table of spec V4 section 2.5.
#include "model/tensor_names.h"

#include <charconv>
#include <string_view>
#include <utility>

namespace hadal {
namespace {

using Rename = std::pair<std::string_view, std::string_view>;

constexpr Rename kGlobals[] = {
    {"embed.weight", "model.embed_tokens.weight"}, {"head.weight", "lm_head.weight"},
    {"norm.weight", "model.norm.weight"},          {"hc_head_fn", "model.hc_head.hc_fn"},
    {"hc_head_base", "model.hc_head.hc_base"},     {"hc_head_scale", "model.hc_head.hc_scale"},
};

// Beginnings of what follows "layers.L."; the first that fits is replaced.
constexpr Rename kInLayer[] = {
    {"attn_norm.", "input_layernorm."},
    {"ffn_norm.", "post_attention_layernorm."},
    {"hc_attn_", "attn_hc."},
    {"hc_ffn_", "ffn_hc."},
    {"attn.wq_a.", "self_attn.q_a_proj."},
    {"attn.q_norm.", "self_attn.q_a_norm."},
    {"attn.wq_b.", "self_attn.q_b_proj."},
    {"attn.wkv.", "self_attn.kv_proj."},
    {"attn.kv_norm.", "self_attn.kv_norm."},
    {"attn.wo_a.", "self_attn.o_a_proj."},
    {"attn.wo_b.", "self_attn.o_b_proj."},
    {"attn.attn_sink", "self_attn.sinks"},
    {"attn.compressor.wkv.", "self_attn.compressor.kv_proj."},
    {"attn.compressor.wgate.", "self_attn.compressor.gate_proj."},
    {"attn.compressor.ape", "self_attn.compressor.position_bias"},
    {"attn.compressor.norm.", "self_attn.compressor.kv_norm."},
    {"attn.indexer.compressor.wkv.", "self_attn.compressor.indexer.kv_proj."},
    {"attn.indexer.compressor.wgate.", "self_attn.compressor.indexer.gate_proj."},
    {"attn.indexer.compressor.ape", "self_attn.compressor.indexer.position_bias"},
    {"attn.indexer.compressor.norm.", "self_attn.compressor.indexer.kv_norm."},
    {"attn.indexer.wq_b.", "self_attn.compressor.indexer.q_b_proj."},
    {"attn.indexer.weights_proj.", "self_attn.compressor.indexer.scorer.weights_proj."},
    {"ffn.gate.bias", "mlp.gate.e_score_correction_bias"},
    {"ffn.gate.", "mlp.gate."},
    {"ffn.shared_experts.w1.", "mlp.shared_experts.gate_proj."},
    {"ffn.shared_experts.w3.", "mlp.shared_experts.up_proj."},
    {"ffn.shared_experts.w2.", "mlp.shared_experts.down_proj."},
};

constexpr Rename kInExpert[] = {{"w1.", "gate_proj."}, {"w3.", "up_proj."}, {"w2.", "down_proj."}};

constexpr std::string_view kExperts = "ffn.experts.";

template <size_t N>
std::string renamed(std::string_view name, const Rename (&table)[N]) {
  for (auto [from, to] : table) {
    if (name.starts_with(from)) return std::string(to).append(name.substr(from.size()));
  }
  return std::string(name);
}

// "model.layers.17.x" with prefix "model.layers." gives 17; -1 where there is no number.
int64_t number_after(const std::string& name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return -1;
  int64_t n = -1;
  const char* begin = name.data() + prefix.size();
  auto [end, fault] = std::from_chars(begin, name.data() + name.size(), n);
  return fault == std::errc() && *begin != '-' && *end == '.' ? n : -1;
}

}  // namespace

std::vector<std::string> transformers_v4_names(const std::string& released) {
  constexpr std::string_view kLayers = "layers.";
  size_t dot = released.find('.', kLayers.size());
  if (!released.starts_with(kLayers) || dot == released.npos) return {renamed(released, kGlobals)};
  std::string name = "model." + released.substr(0, dot + 1);
  std::string_view rest = std::string_view(released).substr(dot + 1);
  if (rest.starts_with(kExperts)) {
    size_t expert_end = rest.find('.', kExperts.size()) + 1;
    name += "mlp.experts.";
    name += rest.substr(kExperts.size(), expert_end - kExperts.size());
    name += renamed(rest.substr(expert_end), kInExpert);
  } else {
    name += renamed(rest, kInLayer);
  }
  constexpr std::string_view kScale = ".scale";
  // hc_*_scale became "attn_hc.scale": that one is no block scale and keeps its name.
  if (name.ends_with(kScale) && !rest.starts_with("hc_")) {
    name.replace(name.size() - kScale.size(), kScale.size(), ".weight_scale_inv");
  }
  std::vector<std::string> names = {name};
  constexpr std::string_view kScorer = ".scorer.weights_proj.";
  if (size_t at = name.find(kScorer); at != name.npos) {
    names.push_back(name.replace(at, kScorer.size(), ".weights_proj."));
  }
  return names;
}

PackedExpertNames packed_expert_names(int64_t layer) {
  std::string p = "model.layers." + std::to_string(layer) + ".mlp.experts.";
  return {p + "gate_up_proj", p + "gate_up_proj_scale_inv", p + "down_proj",
          p + "down_proj_scale_inv"};
}

bool is_draft_name(const Config& config, const std::string& name) {
  if (config.family == Family::kV4) return number_after(name, "mtp.") >= 0;
  int64_t layer = number_after(name, "model.layers.");
  return layer >= config.layers && layer < config.layers + config.draft_layers;
}

}  // namespace hadal
