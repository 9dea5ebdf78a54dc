// Multi-head latent attention of one layer, weight-absorbed: queries are carried into the latent
// space, so that only c | k_pe is cached and read. V3.2 attends to the indexer's choice.
// Source: spec V3.2 3.3, 3.4, 4.1.
#include "kernels/attn_mla.h"
#include "kernels/copy.h"
#include "kernels/linear.h"
#include "kernels/norm.h"
#include "kernels/quant.h"
#include "model/deepseek_v32.h"

namespace hadal {
namespace {

constexpr float kIndexKeyNormEps = 1e-6f;  // spec V3.2 4.1 step 4, whatever norm_eps is

}  // namespace

void DeepseekV32::attention(Context& ctx, const Step& step, int64_t l, const Activation& input) {
  const V32Layer& w = w_.layers[l];
  const LayerCache& cache = step.caches[l];
  int64_t t = step.batch.rows, heads = config_.heads, latent_dim = config_.kv_rank;
  int64_t nope = config_.nope_dim, q_dim = nope + config_.rope_dim;
  auto eps = static_cast<float>(config_.latent_norm_eps);
  Tensor angles = s_.angles.slice(0, 0, t);
  Tensor q = s_.q.slice(0, 0, t), q_latent = s_.q_latent.slice(0, 0, t);

  // Beside the queries: this step's cache entries and index keys.
  Context side = fork(ctx);
  Tensor kv = s_.kv.slice(0, 0, t), c = kv.slice(1, 0, latent_dim);
  linear(side, input, w.kv_a, kv);
  rms_norm(side, c, w.kv_a_norm, eps, c);
  if (numerics_.quantize_cache && config_.family == Family::kV32) qdq_fp8(side, c, kFp8Block);
  Tensor k_pe = kv.reshape({t, 1, kv.shape[1]}).slice(2, latent_dim, kv.shape[1]);
  rope(side, k_pe, angles, RopePairs::kAdjacent, false, k_pe);
  page_write(side, step.batch, kv, step.pages[cache.group], cache.entries);
  if (config_.has_indexer(l)) write_index_keys(side, step, l, input);

  Activation latent = input;
  if (!w.q_a.empty()) {
    Tensor qr = s_.qr.slice(0, 0, t);
    linear(ctx, input, w.q_a, qr);
    latent = s_.latent.normed(ctx, qr, {}, w.q_a_norm, eps, qr, w.q_b);
  }
  linear(ctx, latent, w.q_b, q.reshape({t, heads * q_dim}));
  batched_linear_transposed(ctx, q.slice(2, 0, nope), w.w_uk, q_latent.slice(2, 0, latent_dim));
  rope(ctx, q.slice(2, nope, q_dim), angles, RopePairs::kAdjacent, false,
       q_latent.slice(2, latent_dim, latent_dim + config_.rope_dim));
  join(ctx);

  MlaAttention a;
  if (config_.has_indexer(l) && indexer_.selects(step.batch))
    a.selected = indexer_.select(ctx, step, cache, w.indexer, latent, s_.x.slice(0, 0, t), angles,
                                 s_.indexer);
  a.q = q_latent;
  a.entries = cache.entries;
  a.table = step.pages[cache.group];
  a.scale = softmax_scale_;
  a.out = s_.attended.slice(0, 0, t);
  mla_attention(ctx, step.batch, a);

  Tensor values = s_.values.slice(0, 0, t), flat = values.reshape({t, heads * config_.v_dim});
  batched_linear(ctx, a.out, w.w_uv, values);
  linear(ctx, s_.output.of(ctx, flat, w.o), w.o, s_.delta.slice(0, 0, t));
}

void DeepseekV32::write_index_keys(Context& ctx, const Step& step, int64_t l,
                                   const Activation& input) {
  const IndexerWeights& w = w_.layers[l].indexer;
  const LayerCache& cache = step.caches[l];
  int64_t t = step.batch.rows;
  Tensor angles = s_.angles.slice(0, 0, t), key = s_.index_key.slice(0, 0, t);
  Tensor rows = key.reshape({t, config_.index_dim});
  linear(ctx, input, w.wk, rows);
  layer_norm(ctx, rows, w.k_norm, w.k_norm_bias, kIndexKeyNormEps, rows);
  indexer_.finish_vectors(ctx, key, angles);
  page_write(ctx, step.batch, rows, step.pages[cache.group], cache.index_keys);
}

}  // namespace hadal
