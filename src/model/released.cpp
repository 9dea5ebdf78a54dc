// The shapes of the released models, as their config.json files state them.
#include "model/released.h"

namespace hadal {
namespace {

struct Named {
  const char *name, *config;
};

constexpr Named kReleased[] = {
    {"v4-flash", R"json(
{"bos_token_id": 0, "compress_ratios": [0, 0, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4,
128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128,
4, 128, 4, 128, 4, 128, 4, 0, 0, 0], "compress_rope_theta": 160000, "eos_token_id": 1,
"hc_eps": 1e-06, "hc_mult": 4, "hc_sinkhorn_iters": 20, "head_dim": 512, "hidden_size":
4096, "index_head_dim": 128, "index_n_heads": 64, "index_topk": 512,
"max_position_embeddings": 1048576, "model_type": "deepseek_v4", "moe_intermediate_size":
2048, "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true,
"num_attention_heads": 64, "num_experts_per_tok": 6, "num_hash_layers": 3,
"num_hidden_layers": 43, "num_key_value_heads": 1, "num_nextn_predict_layers": 1,
"o_groups": 8, "o_lora_rank": 1024, "q_lora_rank": 1024, "qk_rope_head_dim": 64,
"quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method":
"fp8", "scale_fmt": "ue8m0", "weight_block_size": [128, 128]}, "rms_norm_eps": 1e-06,
"rope_scaling": {"type": "yarn", "factor": 16, "original_max_position_embeddings": 65536,
"beta_fast": 32, "beta_slow": 1}, "rope_theta": 10000, "routed_scaling_factor": 1.5,
"scoring_func": "sqrtsoftplus", "sliding_window": 128, "swiglu_limit": 10.0, "topk_method":
"noaux_tc", "vocab_size": 129280, "expert_dtype": "fp4", "dspark_block_size": 5,
"dspark_noise_token_id": 128799, "dspark_target_layer_ids": [40, 41, 42],
"dspark_markov_rank": 256}
)json"},
    {"v4-pro", R"json(
{"bos_token_id": 0, "compress_ratios": [128, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4,
128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128,
4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4,
128, 4, 0, 0, 0], "compress_rope_theta": 160000, "eos_token_id": 1, "hc_eps": 1e-06,
"hc_mult": 4, "hc_sinkhorn_iters": 20, "head_dim": 512, "hidden_size": 7168,
"index_head_dim": 128, "index_n_heads": 64, "index_topk": 1024, "max_position_embeddings":
1048576, "model_type": "deepseek_v4", "moe_intermediate_size": 3072, "n_routed_experts":
384, "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 128,
"num_experts_per_tok": 6, "num_hash_layers": 3, "num_hidden_layers": 61,
"num_key_value_heads": 1, "num_nextn_predict_layers": 1, "o_groups": 16, "o_lora_rank":
1024, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "quantization_config":
{"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "scale_fmt": "ue8m0",
"weight_block_size": [128, 128]}, "rms_norm_eps": 1e-06, "rope_scaling": {"type": "yarn",
"factor": 16, "original_max_position_embeddings": 65536, "beta_fast": 32, "beta_slow": 1},
"rope_theta": 10000, "routed_scaling_factor": 2.5, "scoring_func": "sqrtsoftplus",
"sliding_window": 128, "swiglu_limit": 10.0, "topk_method": "noaux_tc", "vocab_size":
129280, "expert_dtype": "fp4", "dspark_block_size": 5, "dspark_noise_token_id": 128799,
"dspark_target_layer_ids": [58, 59, 60], "dspark_markov_rank": 512}
)json"},
    {"v3.2", R"json(
{"bos_token_id": 0, "eos_token_id": 1, "first_k_dense_replace": 3, "hidden_size": 7168,
"intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 163840,
"model_type": "deepseek_v32", "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group":
8, "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true,
"num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61,
"num_key_value_heads": 128, "num_nextn_predict_layers": 1, "q_lora_rank": 1536,
"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "quantization_config":
{"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size":
[128, 128], "scale_fmt": "ue8m0"}, "rms_norm_eps": 1e-06, "rope_scaling": {"beta_fast": 32,
"beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
"original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 10000,
"routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "topk_group": 4, "topk_method":
"noaux_tc", "v_head_dim": 128, "vocab_size": 129280, "index_head_dim": 128, "index_n_heads":
64, "index_topk": 2048}
)json"},
    {"v3", R"json(
{"bos_token_id": 0, "eos_token_id": 1, "first_k_dense_replace": 3, "hidden_size": 7168,
"intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 163840,
"model_type": "deepseek_v3", "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group":
8, "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true,
"num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61,
"num_key_value_heads": 128, "num_nextn_predict_layers": 1, "q_lora_rank": 1536,
"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "quantization_config":
{"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size":
[128, 128]}, "rms_norm_eps": 1e-06, "rope_scaling": {"beta_fast": 32, "beta_slow": 1,
"factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings":
4096, "type": "yarn"}, "rope_theta": 10000, "routed_scaling_factor": 2.5, "scoring_func":
"sigmoid", "topk_group": 4, "topk_method": "noaux_tc", "v_head_dim": 128, "vocab_size":
129280}
)json"},
};

}  // namespace

std::optional<std::string> released_config(const std::string& name) {
  for (const Named& r : kReleased)
    if (name == r.name) return r.config;
  return std::nullopt;
}

std::string released_names() {
  std::string names;
  for (const Named& r : kReleased) names += (names.empty() ? "" : ", ") + std::string(r.name);
  return names;
}

}  // namespace hadal
