// DeepSeek V3, R1, V3.1 (no indexer) and V3.2: the paper's forward pass over the ops of kernels/.
// Read deepseek_v32.cpp first.
#pragma once

#include "base/buffer.h"
#include "model/indexer.h"
#include "model/model.h"
#include "model/moe.h"

namespace hadal {

// Every activation buffer of a step; all but residual and delta are overwritten by each layer.
struct V32Scratch {
  Tensor residual;   // [T, C]
  Tensor delta;      // [T, C] a sub-layer's output, not yet added
  Tensor x;          // [T, C] a sub-layer's normed input
  Tensor qr;         // [T, q_rank]
  Tensor q;          // [T, H, nope + R]
  Tensor q_latent;   // [T, H, L + R] absorbed query
  Tensor kv;         // [T, L + R] latent c | k_pe
  Tensor attended;   // [T, H, L]
  Tensor values;     // [T, H, v]
  Tensor index_key;  // [T, 1, Di]
  Tensor angles;     // [T, R/2, 2] f32
  Tensor head;       // [n, C]
  Operand input, latent, output;
  IndexerScratch indexer;
  MoeScratch moe;

  V32Scratch(Arena& arena, const Config& c, const Numerics& n, const ModelLimits& limits);
};

class DeepseekV32 final : public Model {
 public:
  // weights_memory: what holds the weights on a GPU, else empty.
  DeepseekV32(const Config& config, V32Weights weights, GpuBuffer weights_memory,
              const Numerics& numerics, const ModelLimits& limits, Gpu* gpu);

  void forward(Context& ctx, const Step& step, const Tensor& logits) override;
  int variant(const Step& step) const override;
  int64_t step_weight_bytes() const override;
  int64_t scratch_bytes() const override { return arena_.bytes(); }
  const GpuBuffer& weights_memory() const override { return weights_memory_; }
  void poison_scratch() override { arena_.poison(); }

 private:
  // s.delta = attention of s.x in layer l; input: s.x as the operand of q_a and kv_a
  // (attention_mla.cpp).
  void attention(Context& ctx, const Step& step, int64_t l, const Activation& input);
  // Stores the rows' index keys (attention_mla.cpp).
  void write_index_keys(Context& ctx, const Step& step, int64_t l, const Activation& input);

  Config config_;
  V32Weights w_;
  GpuBuffer weights_memory_;
  Numerics numerics_;
  float softmax_scale_;
  Arena constants_, arena_;
  Tensor freqs_;  // [rope_dim / 2] f32
  V32Scratch s_;
  Indexer indexer_;
  Moe moe_;
};

}  // namespace hadal
