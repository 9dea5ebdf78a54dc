// The tensors of DeepSeek-V3 and V3.2 under their released names. Source: spec V3.2 2.2.
#include "model/binder.h"

namespace hadal {
namespace {

ExpertWeights walk_mlp(Binder& b, const std::string& p, int64_t inter) {
  int64_t hidden = b.config().hidden;
  ExpertWeights w;
  w.gate = b.matrix(p + "gate_proj", inter, hidden, TensorRole::kQuantised);
  w.up = b.matrix(p + "up_proj", inter, hidden, TensorRole::kQuantised);
  w.down = b.matrix(p + "down_proj", hidden, inter, TensorRole::kQuantised);
  return w;
}

void walk_attention(Binder& b, const std::string& p, V32Layer& w) {
  const Config& c = b.config();
  int64_t queries = c.heads * (c.nope_dim + c.rope_dim);
  if (c.q_rank > 0) {
    w.q_a = b.matrix(p + "q_a_proj", c.q_rank, c.hidden, TensorRole::kQuantised);
    w.q_a_norm = b.tensor(p + "q_a_layernorm.weight", {c.q_rank}, TensorRole::kNorm);
    w.q_b = b.matrix(p + "q_b_proj", queries, c.q_rank, TensorRole::kQuantised);
  } else {
    w.q_b = b.matrix(p + "q_proj", queries, c.hidden, TensorRole::kQuantised);
  }
  w.kv_a =
      b.matrix(p + "kv_a_proj_with_mqa", c.kv_rank + c.rope_dim, c.hidden, TensorRole::kQuantised);
  w.kv_a_norm = b.tensor(p + "kv_a_layernorm.weight", {c.kv_rank}, TensorRole::kNorm);
  int64_t per_head = c.nope_dim + c.v_dim;
  Weight kv_b = b.matrix(p + "kv_b_proj", c.heads * per_head, c.kv_rank, TensorRole::kQuantised);
  for (int64_t h = 0; h < c.heads; ++h) {
    int64_t row = h * per_head;
    w.w_uk.push_back(Binder::rows(kv_b, row, row + c.nope_dim));
    w.w_uv.push_back(Binder::rows(kv_b, row + c.nope_dim, row + per_head));
  }
  w.o = b.matrix(p + "o_proj", c.hidden, c.heads * c.v_dim, TensorRole::kQuantised);
}

void walk_indexer(Binder& b, const std::string& p, IndexerWeights& w) {
  const Config& c = b.config();
  w.wq_b = b.matrix(p + "wq_b", c.index_heads * c.index_dim, c.q_rank, TensorRole::kQuantised);
  w.wk = b.matrix(p + "wk", c.index_dim, c.hidden, TensorRole::kQuantised);
  w.k_norm = b.tensor(p + "k_norm.weight", {c.index_dim}, TensorRole::kNorm);
  w.k_norm_bias = b.tensor(p + "k_norm.bias", {c.index_dim}, TensorRole::kNorm);
  w.weights_proj = b.matrix(p + "weights_proj", c.index_heads, c.hidden, TensorRole::kMatrix);
}

void walk_moe(Binder& b, int64_t layer, const std::string& p, MoeWeights& w) {
  const Config& c = b.config();
  w.router = b.matrix(p + "gate", c.router_experts, c.hidden, TensorRole::kMatrix);
  w.bias = b.tensor(p + "gate.e_score_correction_bias", {c.router_experts}, TensorRole::kBias);
  b.experts(layer, p + "experts", "gate_proj", "up_proj", "down_proj", w);
  w.shared = walk_mlp(b, p + "shared_experts.", c.shared_inter);
}

void walk_block(Binder& b, int64_t layer, const std::string& p, V32Layer& w) {
  const Config& c = b.config();
  w.input_norm = b.tensor(p + "input_layernorm.weight", {c.hidden}, TensorRole::kNorm);
  w.post_attention_norm =
      b.tensor(p + "post_attention_layernorm.weight", {c.hidden}, TensorRole::kNorm);
  walk_attention(b, p + "self_attn.", w);
  if (c.family == Family::kV32) walk_indexer(b, p + "self_attn.indexer.", w.indexer);
  if (layer < c.dense_layers) {
    w.dense = walk_mlp(b, p + "mlp.", c.dense_inter);
  } else {
    walk_moe(b, layer, p + "mlp.", w.moe);
  }
}

// Draft layers carry copies of the embedding and the head; only names and sizes matter here.
void walk_draft(Binder& b) {
  const Config& c = b.config();
  b.begin_draft();
  for (int64_t k = 0; k < c.draft_layers; ++k) {
    int64_t layer = c.layers + k;
    std::string p = "model.layers." + std::to_string(layer) + ".";
    V32Layer unused;
    walk_block(b, layer, p, unused);
    b.tensor(p + "embed_tokens.weight", {c.vocab, c.hidden}, TensorRole::kEmbedding);
    b.tensor(p + "enorm.weight", {c.hidden}, TensorRole::kNorm);
    b.tensor(p + "hnorm.weight", {c.hidden}, TensorRole::kNorm);
    b.matrix(p + "eh_proj", c.hidden, 2 * c.hidden, TensorRole::kMatrix);
    b.tensor(p + "shared_head.norm.weight", {c.hidden}, TensorRole::kNorm);
    b.matrix(p + "shared_head.head", c.vocab, c.hidden, TensorRole::kMatrix);
  }
}

}  // namespace

void walk_v32(Binder& b, V32Weights& w, bool draft) {
  const Config& c = b.config();
  w.embed = b.tensor("model.embed_tokens.weight", {c.vocab, c.hidden}, TensorRole::kEmbedding);
  w.head = b.matrix("lm_head", c.vocab, c.hidden, TensorRole::kMatrix);
  w.norm = b.tensor("model.norm.weight", {c.hidden}, TensorRole::kNorm);
  w.layers.resize(c.layers);
  for (int64_t l = 0; l < c.layers; ++l) {
    walk_block(b, l, "model.layers." + std::to_string(l) + ".", w.layers[l]);
  }
  if (draft) walk_draft(b);
}

Result<V32Weights> load_v32_weights(const Config& config, const TensorSource& source,
                                    const Progress& progress) {
  HADAL_CHECK(config.family != Family::kV4, config.model_type);
  Loader loader(config, source, progress);
  V32Weights weights;
  walk_v32(loader, weights, false);
  HADAL_TRY_STATUS(loader.finish());
  return weights;
}

}  // namespace hadal
