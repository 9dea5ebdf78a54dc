// DeepSeek V4: the paper's forward pass over the ops of kernels/. Read deepseek_v4.cpp first.
#pragma once

#include "base/buffer.h"
#include "model/compressor.h"
#include "model/indexer.h"
#include "model/model.h"
#include "model/moe.h"

namespace hadal {

// Every activation buffer of a step; all are overwritten by each layer. T = max_rows.
struct V4Scratch {
  Tensor streams;     // [T, R, C] the residual streams, alive through the whole step
  Tensor post, comb;  // [T, R], [T, R, R] f32: from a sub-layer's hyper_pre to its hyper_post
  Tensor x, y;        // [T, C] a sub-layer's input and output
  Tensor qr;          // [T, q_rank]
  Tensor q;           // [T, H, D] query, then the attention's output
  Tensor attended;    // [T, H, D]
  Tensor kv;          // [T, D] the step's window entries
  Tensor z;           // [T, o_groups * o_rank]
  Tensor plain_angles, compressed_angles;  // [T, R/2, 2] f32
  Tensor head_rows;                        // [n, R, C] streams of the rows whose logits are wanted
  Tensor head;                             // [n, C]
  Operand input, latent, output;
  CompressorScratch compressor;
  IndexerScratch indexer;
  MoeScratch moe;

  V4Scratch(Arena& arena, const Config& c, const Numerics& n, const ModelLimits& limits);
};

class DeepseekV4 final : public Model {
 public:
  // weights_memory: what holds the weights on a GPU, else empty.
  DeepseekV4(const Config& config, V4Weights weights, GpuBuffer weights_memory,
             const Numerics& numerics, const ModelLimits& limits, Gpu* gpu);

  void forward(Context& ctx, const Step& step, const Tensor& logits) override;
  int variant(const Step& step) const override;
  int64_t step_weight_bytes() const override;
  int64_t scratch_bytes() const override { return arena_.bytes(); }
  const GpuBuffer& weights_memory() const override { return weights_memory_; }
  void poison_scratch() override { arena_.poison(); }

 private:
  // s.y = attention of s.x in layer l; input: s.x as the operand of wq_a (attention_csa.cpp).
  void attention(Context& ctx, const Step& step, int64_t l, const Activation& input);
  // Stores the layer's new compressed entries and index keys (attention_csa.cpp).
  void compress_step(Context& ctx, const Step& step, int64_t l, const Tensor& x);
  void head(Context& ctx, const Step& step, const Tensor& logits);

  Config config_;
  V4Weights w_;
  GpuBuffer weights_memory_;
  Numerics numerics_;
  HyperParams hyper_;
  Arena constants_, arena_;
  Tensor plain_freqs_, compressed_freqs_;  // [rope_dim / 2] f32
  V4Scratch s_;
  Indexer indexer_;
  Moe moe_;
};

}  // namespace hadal
