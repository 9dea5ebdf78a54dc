// The V4 forward pass: embed, then per layer {mix in, norm, attention, mix out, mix in, norm,
// experts, mix out}, then head mix, norm, logits. Source: spec V4 3.7; arXiv 2606.19348.
// Attention is in attention_csa.cpp, the experts in moe.cpp, sizes and lifetimes in V4Scratch.
#include "model/deepseek_v4.h"

#include <algorithm>

#include "kernels/copy.h"
#include "kernels/embed.h"
#include "kernels/hyper.h"
#include "kernels/linear.h"
#include "kernels/norm.h"
#include "model/rope_table.h"

namespace hadal {

void DeepseekV4::forward(Context& ctx, const Step& step, const Tensor& logits) {
  int64_t t = step.batch.rows;
  auto eps = static_cast<float>(config_.norm_eps);
  Tensor streams = s_.streams.slice(0, 0, t);
  Tensor x = s_.x.slice(0, 0, t), y = s_.y.slice(0, 0, t);
  Tensor post = s_.post.slice(0, 0, t), comb = s_.comb.slice(0, 0, t);
  Tensor pending;  // a sub-layer's output that is not yet mixed into the streams

  rope_angles(ctx, step.batch.positions, plain_freqs_, s_.plain_angles.slice(0, 0, t));
  rope_angles(ctx, step.batch.positions, compressed_freqs_, s_.compressed_angles.slice(0, 0, t));
  embed(ctx, step.ids, w_.embed, streams);
  for (int64_t l = 0; l < config_.layers; ++l) {
    const V4Layer& w = w_.layers[l];

    hyper_post_pre(ctx, pending, streams, w.attn_hc, hyper_, x, post, comb);
    Activation in = s_.input.normed(ctx, x, {}, w.attn_norm, eps, x, w.wq_a);
    attention(ctx, step, l, in);

    hyper_post_pre(ctx, y, streams, w.ffn_hc, hyper_, x, post, comb);
    in = s_.moe.input.normed(ctx, x, {}, w.ffn_norm, eps, x, w.moe.gate[0]);
    moe_(ctx, w.moe, step.ids, x, in, y, s_.moe);
    pending = y;

    if (observer) {
      hyper_post(ctx, pending, post, comb, streams);
      pending = {};
      observer(l, streams);
    }
  }
  if (!pending.empty()) hyper_post(ctx, pending, post, comb, streams);
  head(ctx, step, logits);
}

void DeepseekV4::head(Context& ctx, const Step& step, const Tensor& logits) {
  int64_t n = step.logit_count, t = step.batch.rows, width = config_.streams * config_.hidden;
  if (n == 0) return;
  Tensor rows = s_.head_rows.slice(0, 0, n), h = s_.head.slice(0, 0, n);
  gather_rows(ctx, s_.streams.slice(0, 0, t).reshape({t, width}), step.logit_rows, n,
              rows.reshape({n, width}));
  hyper_head(ctx, rows, w_.hc_head, hyper_, h);
  rms_norm(ctx, h, w_.norm, static_cast<float>(config_.norm_eps), h);
  if (observer) observer(config_.layers, h);
  linear(ctx, {h, {}}, w_.head, logits);
}

DeepseekV4::DeepseekV4(const Config& config, V4Weights weights, GpuBuffer weights_memory,
                       const Numerics& numerics, const ModelLimits& limits, Gpu* gpu)
    : config_(config),
      w_(std::move(weights)),
      weights_memory_(std::move(weights_memory)),
      numerics_(numerics),
      hyper_{static_cast<float>(config.norm_eps), static_cast<float>(config.hc_eps),
             config.sinkhorn_iters},
      constants_(gpu),
      arena_(gpu),
      plain_freqs_(rope_freqs(constants_, config.rope_theta, config.rope_dim, RopeScaling{})),
      compressed_freqs_(
          rope_freqs(constants_, config.compress_rope_theta, config.rope_dim, config.rope_scaling)),
      s_(arena_, config, numerics, limits),
      indexer_(config, numerics, 4),
      moe_(config, numerics) {}

V4Scratch::V4Scratch(Arena& arena, const Config& c, const Numerics& n, const ModelLimits& limits)
    : moe(arena, c, n, limits.max_rows) {
  int64_t t = limits.max_rows, heads = limits.max_logit_rows, r = c.streams;
  DType a = n.activation;
  streams = arena.make(a, {t, r, c.hidden});
  post = arena.make(DType::kF32, {t, r});
  comb = arena.make(DType::kF32, {t, r, r});
  x = arena.make(a, {t, c.hidden});
  y = arena.make(a, {t, c.hidden});
  qr = arena.make(a, {t, c.q_rank});
  q = arena.make(a, {t, c.heads, c.head_dim});
  attended = arena.make(a, {t, c.heads, c.head_dim});
  kv = arena.make(a, {t, c.head_dim});
  z = arena.make(a, {t, c.o_groups * c.o_rank});
  plain_angles = arena.make(DType::kF32, {t, c.rope_dim / 2, 2});
  compressed_angles = arena.make(DType::kF32, {t, c.rope_dim / 2, 2});
  head_rows = arena.make(a, {heads, r, c.hidden});
  head = arena.make(a, {heads, c.hidden});
  input = Operand(arena, n, c.pow2_scales, {{t, c.hidden}});
  latent = Operand(arena, n, c.pow2_scales, {{t, c.q_rank}});
  output = Operand(arena, n, c.pow2_scales, {{t, c.o_groups * c.o_rank}});

  int64_t width = 0;
  for (int ratio : c.compress_ratios)
    if (ratio > 0)
      width = std::max(
          {width, compressor_width(ratio, c.head_dim), compressor_width(ratio, c.index_dim)});
  compressor = CompressorScratch(arena, t, width);
  if (std::ranges::count(c.compress_ratios, 4) > 0)
    indexer = IndexerScratch(arena, c, n, t, limits.max_context / 4);
}

int DeepseekV4::variant(const Step& step) const {
  return std::ranges::count(config_.compress_ratios, 4) > 0 && indexer_.selects(step.batch);
}

int64_t DeepseekV4::step_weight_bytes() const {
  int64_t n = w_.head.bytes() + w_.norm.bytes() + w_.hc_head.fn.bytes();
  auto expert = [](const ExpertWeights& e) {
    return e.gate.bytes() + e.up.bytes() + e.down.bytes();
  };
  for (const V4Layer& l : w_.layers) {
    for (const HyperWeights& h : {l.attn_hc, l.ffn_hc}) n += h.fn.bytes();
    for (const Weight* w : {&l.wq_a, &l.wq_b, &l.wkv, &l.wo_b, &l.moe.router}) n += w->bytes();
    // The slices of wo_a share one scale tensor: count it once.
    for (const Weight& w : l.wo_a) n += w.data.bytes();
    if (!l.wo_a[0].scale.empty()) n += l.wo_a[0].scale.bytes();
    for (const CompressorWeights* c : {&l.compressor, &l.indexer_compressor})
      if (!c->wkv.empty()) n += c->wkv.bytes() + c->wgate.bytes();
    if (!l.indexer.wq_b.empty()) n += l.indexer.wq_b.bytes() + l.indexer.weights_proj.bytes();
    n += expert(l.moe.shared) +
         config_.experts_per_token * expert({l.moe.gate[0], l.moe.up[0], l.moe.down[0]});
  }
  return n;
}

}  // namespace hadal
