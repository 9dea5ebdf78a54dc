// config.json as one plain struct. No default is hidden elsewhere: what the file does not say is
// set in config.cpp, in one place, or refused. Source: spec V4 1.1-1.3, spec V3.2 1.1.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace hadal {

enum class Family {
  kV3,   // deepseek_v3: V3, R1, V3.1
  kV32,  // deepseek_v32: the same with the lightning indexer
  kV4,   // deepseek_v4
};

// Static YaRN: the same table at every length. factor 1 = plain RoPE.
struct RopeScaling {
  double factor = 1.0;
  double original_context = 4096;
  double beta_fast = 32.0, beta_slow = 1.0;
  double mscale = 0.0, mscale_all_dim = 0.0;  // 0: no change to the softmax scale
};

struct Config {
  Family family = Family::kV3;
  std::string model_type;  // as written in the file

  // Shape, all families.
  int64_t vocab = 0;         // V
  int64_t hidden = 0;        // C
  int64_t layers = 0;        // without draft layers
  int64_t draft_layers = 0;  // stages of the draft module: recognised in the checkpoint, not run
  int64_t draft_markov_rank = 0;  // V4: > 0 says that the draft module is DSpark's
  int64_t heads = 0;              // H
  int64_t q_rank = 0;             // q_lora_rank; 0 = one q_proj (V3 family only)
  int64_t rope_dim = 0;           // R
  int64_t max_context = 0;        // max_position_embeddings
  double norm_eps = 1e-6;
  double latent_norm_eps = 1e-6;  // q_a and kv_a norms (V3 family: 1e-6 whatever norm_eps is)
  double rope_theta = 10000;
  RopeScaling rope_scaling;  // V4: of the compressed layers; window-only layers are plain
  int64_t bos_id = 0;
  std::vector<int64_t> eos_ids = {1};

  // V3, V3.2.
  int64_t kv_rank = 0;  // kv_lora_rank L
  int64_t nope_dim = 0, v_dim = 0;
  int64_t dense_layers = 0;  // first_k_dense_replace
  int64_t dense_inter = 0;   // intermediate_size

  // V4.
  int64_t head_dim = 0;  // D
  int64_t o_rank = 0, o_groups = 0;
  int64_t window = 0;
  std::vector<int> compress_ratios;  // per layer (draft layers cut off): 0, 4 or 128 (any > 4: no
                                     // overlap, no indexer)
  double compress_rope_theta = 0;
  int64_t hash_layers = 0;
  double swiglu_limit = 0;  // 0 = none; applies to routed and shared experts
  int64_t streams = 1;      // hc_mult
  int sinkhorn_iters = 0;
  double hc_eps = 0;

  // Indexer (V3.2; V4 ratio-4 layers).
  int64_t index_heads = 0, index_dim = 0, index_topk = 0;

  // Experts.
  int64_t experts = 0, shared_experts = 0, experts_per_token = 0;
  int64_t moe_inter = 0;
  int64_t shared_inter = 0;  // of the shared experts together: one MLP
  // The router chooses among all experts; the model holds `experts` of them from first_expert on.
  // Different from (experts, 0) in a rank's slice alone (model/slice.h).
  int64_t router_experts = 0, first_expert = 0;
  int64_t router_groups = 1, kept_groups = 1;
  double route_scale = 1.0;
  bool normalize_weights = true;
  enum class Score { kSigmoid, kSqrtSoftplus } score = Score::kSigmoid;

  // Quantisation as the file declares it; the tensors' dtypes decide what is done.
  bool fp8 = false;          // quantization_config.quant_method == "fp8"
  bool pow2_scales = false;  // scale_fmt ue8m0: activation scales are powers of two
  bool fp4_experts = false;  // expert_dtype fp4 (absent: the tensors say)

  bool has_indexer(int64_t layer) const {
    return family == Family::kV32 || (family == Family::kV4 && compress_ratios[layer] == 4);
  }
};

// Parses the text of a config.json. `path` is for messages only. Accepts the released spelling and
// the one transformers writes (rope_parameters, layer_types, compress_rates, mlp_layer_types,
// dtype, ...). Unknown keys are ignored; a missing or mistyped key that matters, an impossible
// value, or an unsupported model_type gives a sentence naming file, key and what was expected.
Result<Config> parse_config(const std::string& json_text, const std::string& path);

}  // namespace hadal
