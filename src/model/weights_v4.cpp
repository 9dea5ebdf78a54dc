// DeepSeek-V4's tensors under their released names. Source: spec V4 2.2.
#include "model/binder.h"

namespace hadal {
namespace {

HyperWeights walk_hyper(Binder& b, const std::string& stem, int64_t mixes, int64_t scales) {
  const Config& c = b.config();
  return {b.tensor(stem + "_fn", {mixes, c.streams * c.hidden}, TensorRole::kHyper),
          b.tensor(stem + "_base", {mixes}, TensorRole::kHyper),
          b.tensor(stem + "_scale", {scales}, TensorRole::kHyper)};
}

CompressorWeights walk_compressor(Binder& b, const std::string& stem, int ratio, int64_t width) {
  const Config& c = b.config();
  int64_t columns = (ratio == 4 ? 2 : 1) * width;  // ratio 4 pools two overlapping halves
  CompressorWeights w;
  w.wkv = b.matrix(stem + ".wkv", columns, c.hidden, TensorRole::kMatrix);
  w.wgate = b.matrix(stem + ".wgate", columns, c.hidden, TensorRole::kMatrix);
  w.ape = b.tensor(stem + ".ape", {ratio, columns}, TensorRole::kBias);
  w.norm = b.tensor(stem + ".norm.weight", {width}, TensorRole::kNorm);
  return w;
}

void walk_attention(Binder& b, const std::string& p, int ratio, V4Layer& w) {
  const Config& c = b.config();
  int64_t queries = c.heads * c.head_dim;
  w.attn_sink = b.tensor(p + "attn_sink", {c.heads}, TensorRole::kBias);
  w.wq_a = b.matrix(p + "wq_a", c.q_rank, c.hidden, TensorRole::kQuantised);
  w.q_norm = b.tensor(p + "q_norm.weight", {c.q_rank}, TensorRole::kNorm);
  w.wq_b = b.matrix(p + "wq_b", queries, c.q_rank, TensorRole::kQuantised);
  w.wkv = b.matrix(p + "wkv", c.head_dim, c.hidden, TensorRole::kQuantised);
  w.kv_norm = b.tensor(p + "kv_norm.weight", {c.head_dim}, TensorRole::kNorm);
  Weight wo_a =
      b.matrix(p + "wo_a", c.o_groups * c.o_rank, queries / c.o_groups, TensorRole::kQuantised);
  for (int64_t g = 0; g < c.o_groups; ++g) {
    w.wo_a.push_back(Binder::rows(wo_a, g * c.o_rank, (g + 1) * c.o_rank));
  }
  w.wo_b = b.matrix(p + "wo_b", c.hidden, c.o_groups * c.o_rank, TensorRole::kQuantised);
  if (ratio > 0) w.compressor = walk_compressor(b, p + "compressor", ratio, c.head_dim);
  if (ratio == 4) {
    w.indexer.wq_b =
        b.matrix(p + "indexer.wq_b", c.index_heads * c.index_dim, c.q_rank, TensorRole::kQuantised);
    w.indexer.weights_proj =
        b.matrix(p + "indexer.weights_proj", c.index_heads, c.hidden, TensorRole::kMatrix);
    w.indexer_compressor = walk_compressor(b, p + "indexer.compressor", ratio, c.index_dim);
  }
}

void walk_moe(Binder& b, int64_t layer, const std::string& p, bool hash, MoeWeights& w) {
  const Config& c = b.config();
  w.router = b.matrix(p + "gate", c.router_experts, c.hidden, TensorRole::kMatrix);
  if (hash) {
    w.table = b.tensor(p + "gate.tid2eid", {c.vocab, c.experts_per_token}, TensorRole::kTable);
  } else {
    w.bias = b.tensor(p + "gate.bias", {c.router_experts}, TensorRole::kBias);
  }
  b.experts(layer, p + "experts", "w1", "w3", "w2", w);
  int64_t inter = c.shared_inter;
  std::string shared = p + "shared_experts.";
  w.shared.gate = b.matrix(shared + "w1", inter, c.hidden, TensorRole::kQuantised);
  w.shared.up = b.matrix(shared + "w3", inter, c.hidden, TensorRole::kQuantised);
  w.shared.down = b.matrix(shared + "w2", c.hidden, inter, TensorRole::kQuantised);
}

void walk_block(Binder& b, int64_t layer, const std::string& p, int ratio, bool hash, V4Layer& w) {
  const Config& c = b.config();
  int64_t mixes = 2 * c.streams + c.streams * c.streams;
  w.attn_norm = b.tensor(p + "attn_norm.weight", {c.hidden}, TensorRole::kNorm);
  w.ffn_norm = b.tensor(p + "ffn_norm.weight", {c.hidden}, TensorRole::kNorm);
  w.attn_hc = walk_hyper(b, p + "hc_attn", mixes, 3);
  w.ffn_hc = walk_hyper(b, p + "hc_ffn", mixes, 3);
  walk_attention(b, p + "attn.", ratio, w);
  walk_moe(b, layer, p + "ffn.", hash, w.moe);
}

// Draft stages are blocks with a few tensors of their own; only their names and sizes matter here.
void walk_draft(Binder& b) {
  const Config& c = b.config();
  bool dspark = c.draft_markov_rank > 0;
  b.begin_draft();
  for (int64_t k = 0; k < c.draft_layers; ++k) {
    std::string p = "mtp." + std::to_string(k) + ".";
    V4Layer unused;
    walk_block(b, c.layers + k, p, 0, false, unused);
    bool first = k == 0, last = k == c.draft_layers - 1;
    if (dspark && first) {
      b.matrix(p + "main_proj", c.hidden, 3 * c.hidden, TensorRole::kQuantised);
      b.tensor(p + "main_norm.weight", {c.hidden}, TensorRole::kNorm);
    }
    if (!dspark) {
      b.matrix(p + "e_proj", c.hidden, c.hidden, TensorRole::kQuantised);
      b.matrix(p + "h_proj", c.hidden, c.hidden, TensorRole::kQuantised);
      b.tensor(p + "enorm.weight", {c.hidden}, TensorRole::kNorm);
      b.tensor(p + "hnorm.weight", {c.hidden}, TensorRole::kNorm);
    }
    if (!dspark || last) {
      b.tensor(p + "norm.weight", {c.hidden}, TensorRole::kNorm);
      walk_hyper(b, p + "hc_head", c.streams, 1);
    }
    if (dspark && last) {
      int64_t rank = c.draft_markov_rank;
      b.matrix(p + "markov_head.markov_w1", c.vocab, rank, TensorRole::kMatrix);
      b.matrix(p + "markov_head.markov_w2", c.vocab, rank, TensorRole::kMatrix);
      b.matrix(p + "confidence_head.proj", 1, c.hidden + rank, TensorRole::kMatrix);
    }
  }
}

}  // namespace

void walk_v4(Binder& b, V4Weights& w, bool draft) {
  const Config& c = b.config();
  w.embed = b.tensor("embed.weight", {c.vocab, c.hidden}, TensorRole::kEmbedding);
  w.head = b.matrix("head", c.vocab, c.hidden, TensorRole::kMatrix);
  w.norm = b.tensor("norm.weight", {c.hidden}, TensorRole::kNorm);
  w.hc_head = walk_hyper(b, "hc_head", c.streams, 1);
  w.layers.resize(c.layers);
  for (int64_t l = 0; l < c.layers; ++l) {
    walk_block(b, l, "layers." + std::to_string(l) + ".", c.compress_ratios[l], l < c.hash_layers,
               w.layers[l]);
  }
  if (draft) walk_draft(b);
}

Result<V4Weights> load_v4_weights(const Config& config, const TensorSource& source,
                                  const Progress& progress) {
  HADAL_CHECK(config.family == Family::kV4, config.model_type);
  Loader loader(config, source, progress);
  V4Weights weights;
  walk_v4(loader, weights, false);
  HADAL_TRY_STATUS(loader.finish());
  return weights;
}

}  // namespace hadal
