// Tensor names to typed views. One struct per block of the paper, fields under the released names.
// Everything is a view into the TensorSource; nothing is copied or expanded.
// Source: spec V4 2.2 and 2.5, spec V3.2 2.2.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/tensor_source.h"
#include "kernels/hyper.h"
#include "kernels/weight.h"
#include "model/config.h"

namespace hadal {

struct ExpertWeights {
  Weight gate, up, down;  // w1, w3, w2
};

struct MoeWeights {
  Weight router;                       // [E, C] bf16|f32
  Tensor bias;                         // [E] f32, empty in hash layers
  Tensor table;                        // [V, K] i64, hash layers only
  std::vector<Weight> gate, up, down;  // [E] each: grouped_linear takes one list per matrix
  ExpertWeights shared;                // one MLP of width shared_experts * moe_inter
};

struct IndexerWeights {
  Weight wq_b;
  Weight weights_proj;
  Weight wk;                   // V3.2 only
  Tensor k_norm, k_norm_bias;  // V3.2 only
};

struct CompressorWeights {
  Weight wkv, wgate;  // [c * Dc, C]
  Tensor ape;         // [ratio, c * Dc] f32
  Tensor norm;        // [Dc]
};

struct V4Layer {
  Tensor attn_norm, ffn_norm;
  HyperWeights attn_hc, ffn_hc;
  Weight wq_a, wq_b, wkv, wo_b;
  std::vector<Weight> wo_a;  // [o_groups] row slices, each [o_rank, H * D / o_groups]
  Tensor q_norm, kv_norm, attn_sink;
  CompressorWeights compressor;  // ratio > 0
  IndexerWeights indexer;        // ratio 4
  CompressorWeights indexer_compressor;
  MoeWeights moe;
};

struct V4Weights {
  Tensor embed;
  Weight head;
  Tensor norm;
  HyperWeights hc_head;
  std::vector<V4Layer> layers;
};

struct V32Layer {
  Tensor input_norm, post_attention_norm;
  Weight q_a, q_b;  // q_rank == 0: q_b is q_proj and q_a is empty
  Tensor q_a_norm;
  Weight kv_a;
  Tensor kv_a_norm;
  std::vector<Weight> w_uk, w_uv;  // [H] row slices of kv_b: [nope, L] and [v, L]
  Weight o;
  IndexerWeights indexer;  // V3.2
  ExpertWeights dense;     // layers < dense_layers
  MoeWeights moe;          // the others
};

struct V32Weights {
  Tensor embed;
  Weight head;
  Tensor norm;
  std::vector<V32Layer> layers;
};

// What a tensor is for: decides how random values are drawn and what counts as a parameter.
enum class TensorRole : uint8_t {
  kEmbedding,  // rows picked by token id
  kMatrix,     // a weight of a linear layer, never quantised in the releases
  kQuantised,  // a weight of a linear layer, FP8 in a quantised release
  kExpert,     // one of a routed expert's three matrices
  kScale,      // the block scales of a kQuantised or kExpert matrix
  kNorm,       // a norm's gain
  kBias,       // a norm's or a router's bias, an attention sink, position biases
  kHyper,      // mHC's fn, base and scale
  kTable,      // expert ids per token
};

// Every tensor that a model of this config has: name, shape, dtypes that may stand there (the
// releases' own first).
struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<DType> dtypes;
  TensorRole role = TensorRole::kMatrix;
  bool draft = false;  // belongs to the draft modules: recognised, not needed
};

// Calls progress(done, total) while tensors are bound, in bytes; may be empty.
using Progress = std::function<void(int64_t done, int64_t total)>;

// Binds all tensors of the main model. Strict: a missing tensor, a wrong shape or dtype, a scale
// without its weight or the reverse, an unknown tensor, a non-finite norm, bias, sink or scale, an
// expert id outside [0, E) in a hash table: one sentence that names file, tensor and what was
// expected. Both the released names and those of a transformers conversion are accepted.
Result<V4Weights> load_v4_weights(const Config& config, const TensorSource& source,
                                  const Progress& progress = {});
Result<V32Weights> load_v32_weights(const Config& config, const TensorSource& source,
                                    const Progress& progress = {});

// The released-format inventory of a config, used by `inspect`, `plan` and random weights. Draft
// tensors included. With `fp8`/`fp4_experts` of the config deciding dtypes.
std::vector<TensorSpec> expected_tensors(const Config& config);

}  // namespace hadal
