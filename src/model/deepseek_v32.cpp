// The V3 / V3.2 forward pass: embed, then per layer {norm, attention, norm, dense or experts},
// then norm and logits. Each norm takes the pending output of the sub-layer before it: the fp32
// sum is normed unrounded and stored rounded. Source: spec V3.2 3.1; arXiv 2412.19437.
// Attention is in attention_mla.cpp, the experts in moe.cpp, sizes and lifetimes in V32Scratch.
#include "model/deepseek_v32.h"

#include <algorithm>
#include <cmath>

#include "kernels/copy.h"
#include "kernels/embed.h"
#include "kernels/linear.h"
#include "kernels/norm.h"
#include "model/rope_table.h"

namespace hadal {

void DeepseekV32::forward(Context& ctx, const Step& step, const Tensor& logits) {
  int64_t t = step.batch.rows, c = config_.hidden;
  auto eps = static_cast<float>(config_.norm_eps);
  Tensor residual = s_.residual.slice(0, 0, t), x = s_.x.slice(0, 0, t);
  Tensor delta = s_.delta.slice(0, 0, t), pending;

  rope_angles(ctx, step.batch.positions, freqs_, s_.angles.slice(0, 0, t));
  embed(ctx, step.ids, w_.embed, residual.reshape({t, 1, c}));
  for (int64_t l = 0; l < config_.layers; ++l) {
    const V32Layer& w = w_.layers[l];

    Activation in = s_.input.normed(ctx, residual, pending, w.input_norm, eps, x, w.kv_a);
    if (observer && l > 0) observer(l - 1, residual);
    attention(ctx, step, l, in);
    pending = delta;

    bool dense = l < config_.dense_layers;
    in = s_.moe.input.normed(ctx, residual, pending, w.post_attention_norm, eps, x,
                             dense ? w.dense.gate : w.moe.gate[0]);
    if (dense)
      moe_.mlp(ctx, w.dense, in, delta, s_.moe);
    else
      moe_(ctx, w.moe, step.ids, x, in, delta, s_.moe);
  }
  add_rms_norm(ctx, residual, pending, w_.norm, eps, x);
  if (observer) observer(config_.layers - 1, residual);

  Tensor head = s_.head.slice(0, 0, step.logit_count);
  gather_rows(ctx, x, step.logit_rows, step.logit_count, head);
  if (observer) observer(config_.layers, head);
  linear(ctx, {head, {}}, w_.head, logits);
}

DeepseekV32::DeepseekV32(const Config& config, V32Weights weights, GpuBuffer weights_memory,
                         const Numerics& numerics, const ModelLimits& limits, Gpu* gpu)
    : config_(config),
      w_(std::move(weights)),
      weights_memory_(std::move(weights_memory)),
      numerics_(numerics),
      constants_(gpu),
      arena_(gpu),
      freqs_(rope_freqs(constants_, config.rope_theta, config.rope_dim, config.rope_scaling)),
      s_(arena_, config, numerics, limits),
      indexer_(config, numerics, 1),
      moe_(config, numerics) {
  double m = yarn_mscale(config.rope_scaling.factor, config.rope_scaling.mscale_all_dim);
  softmax_scale_ = static_cast<float>(m * m / std::sqrt(double(config.nope_dim + config.rope_dim)));
}

V32Scratch::V32Scratch(Arena& arena, const Config& c, const Numerics& n, const ModelLimits& limits)
    : moe(arena, c, n, limits.max_rows) {
  int64_t t = limits.max_rows, latent_dim = c.kv_rank + c.rope_dim;
  DType a = n.activation;
  residual = arena.make(a, {t, c.hidden});
  delta = arena.make(a, {t, c.hidden});
  x = arena.make(a, {t, c.hidden});
  qr = arena.make(a, {t, std::max<int64_t>(c.q_rank, 1)});
  q = arena.make(a, {t, c.heads, c.nope_dim + c.rope_dim});
  q_latent = arena.make(a, {t, c.heads, latent_dim});
  kv = arena.make(a, {t, latent_dim});
  attended = arena.make(a, {t, c.heads, c.kv_rank});
  values = arena.make(a, {t, c.heads, c.v_dim});
  angles = arena.make(DType::kF32, {t, c.rope_dim / 2, 2});
  head = arena.make(a, {limits.max_logit_rows, c.hidden});
  input = Operand(arena, n, c.pow2_scales, {{t, c.hidden}});
  latent = Operand(arena, n, c.pow2_scales, {{t, std::max<int64_t>(c.q_rank, 1)}});
  output = Operand(arena, n, c.pow2_scales, {{t, c.heads * c.v_dim}});
  if (c.family == Family::kV32) {
    index_key = arena.make(a, {t, 1, c.index_dim});
    indexer = IndexerScratch(arena, c, n, t, limits.max_context);
  }
}

int DeepseekV32::variant(const Step& step) const {
  return config_.family == Family::kV32 && indexer_.selects(step.batch);
}

int64_t DeepseekV32::step_weight_bytes() const {
  int64_t n = w_.head.bytes() + w_.norm.bytes();
  auto expert = [](const ExpertWeights& e) {
    return e.gate.empty() ? 0 : e.gate.bytes() + e.up.bytes() + e.down.bytes();
  };
  for (size_t i = 0; i < w_.layers.size(); ++i) {
    const V32Layer& l = w_.layers[i];
    for (const Weight* w : {&l.q_b, &l.kv_a, &l.o}) n += w->bytes();
    if (!l.q_a.empty()) n += l.q_a.bytes();
    for (const auto* slices : {&l.w_uk, &l.w_uv})
      for (const Weight& w : *slices) n += w.data.bytes();
    if (!l.w_uk[0].scale.empty()) n += l.w_uk[0].scale.bytes();
    if (!l.indexer.wq_b.empty())
      n += l.indexer.wq_b.bytes() + l.indexer.wk.bytes() + l.indexer.weights_proj.bytes();
    if (static_cast<int64_t>(i) < config_.dense_layers) {
      n += expert(l.dense);
    } else {
      n += l.moe.router.bytes() + expert(l.moe.shared) +
           config_.experts_per_token * expert({l.moe.gate[0], l.moe.up[0], l.moe.down[0]});
    }
  }
  return n;
}

}  // namespace hadal
