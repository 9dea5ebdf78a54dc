// V4 attention of one layer: compressed sparse (ratio 4, with indexer), heavily compressed (ratio
// 128) or window only (ratio 0), by the layer's compress ratio. Source: spec V4 4.1 to 4.4.
#include <cmath>

#include "kernels/attn_sparse.h"
#include "kernels/copy.h"
#include "kernels/linear.h"
#include "kernels/norm.h"
#include "kernels/quant.h"
#include "model/deepseek_v4.h"

namespace hadal {

void DeepseekV4::attention(Context& ctx, const Step& step, int64_t l, const Activation& input) {
  const V4Layer& w = w_.layers[l];
  const LayerCache& cache = step.caches[l];
  int64_t t = step.batch.rows, heads = config_.heads, dim = config_.head_dim;
  int64_t nope = dim - config_.rope_dim;
  int ratio = config_.compress_ratios[l];
  auto eps = static_cast<float>(config_.norm_eps);
  Tensor x = s_.x.slice(0, 0, t), y = s_.y.slice(0, 0, t);
  Tensor angles = (ratio > 0 ? s_.compressed_angles : s_.plain_angles).slice(0, 0, t);

  Tensor qr = s_.qr.slice(0, 0, t), q = s_.q.slice(0, 0, t), kv = s_.kv.slice(0, 0, t);
  // Beside the queries: this step's window entries, and what the compressors emit.
  Context side = fork(ctx);
  linear(side, input, w.wkv, kv);
  rms_norm(side, kv, w.kv_norm, eps, kv);
  Tensor kv_rope = kv.reshape({t, 1, dim}).slice(2, nope, dim);
  rope(side, kv_rope, angles, RopePairs::kAdjacent, false, kv_rope);
  if (numerics_.quantize_cache) qdq_fp8(side, kv.slice(1, 0, nope), 64);
  if (ratio > 0) compress_step(side, step, l, x);

  linear(ctx, input, w.wq_a, qr);
  Activation latent = s_.latent.normed(ctx, qr, {}, w.q_norm, eps, qr, w.wq_b);
  linear(ctx, latent, w.wq_b, q.reshape({t, heads * dim}));
  Tensor q_rows = q.reshape({t * heads, dim});
  rms_norm(ctx, q_rows, {}, eps, q_rows);
  Tensor q_rope = q.slice(2, nope, dim);
  rope(ctx, q_rope, angles, RopePairs::kAdjacent, false, q_rope);
  join(ctx);

  SparseAttention a;
  if (ratio > 0) {
    a.entries = cache.entries;
    a.table = step.pages[cache.group];
    a.ratio = ratio;
    if (config_.has_indexer(l) && indexer_.selects(step.batch))
      a.selected = indexer_.select(ctx, step, cache, w.indexer, latent, x, angles, s_.indexer);
  }
  a.q = q;
  a.step_kv = kv;
  a.ring = cache.window;
  a.window = static_cast<int>(config_.window);
  a.sink = w.attn_sink;
  a.scale = static_cast<float>(1.0 / std::sqrt(double(dim)));
  a.out = s_.attended.slice(0, 0, t);
  sparse_attention(ctx, step.batch, a);
  ring_write(ctx, step.batch, kv, cache.window);

  // Values were rotated by their own position: turn the result back by the query's.
  Tensor out_rope = a.out.slice(2, nope, dim);
  rope(ctx, out_rope, angles, RopePairs::kAdjacent, true, out_rope);
  int64_t groups = config_.o_groups;
  Tensor z = s_.z.slice(0, 0, t);
  batched_linear(ctx, a.out.reshape({t, groups, heads * dim / groups}), w.wo_a,
                 z.reshape({t, groups, config_.o_rank}));
  linear(ctx, s_.output.of(ctx, z, w.wo_b), w.wo_b, y);
}

void DeepseekV4::compress_step(Context& ctx, const Step& step, int64_t l, const Tensor& x) {
  const V4Layer& w = w_.layers[l];
  const LayerCache& cache = step.caches[l];
  int ratio = config_.compress_ratios[l];
  bool quantize = numerics_.quantize_cache;
  auto eps = static_cast<float>(config_.norm_eps);
  run_compressor(ctx, step, w.compressor, ratio, config_.head_dim, eps, compressed_freqs_,
                 quantize ? Compress::Quant::kFp8 : Compress::Quant::kNone, x, cache.entries,
                 cache.group, cache.compressor, s_.compressor);
  if (!config_.has_indexer(l)) return;
  run_compressor(ctx, step, w.indexer_compressor, ratio, config_.index_dim, eps, compressed_freqs_,
                 quantize ? Compress::Quant::kHadamardFp4 : Compress::Quant::kNone, x,
                 cache.index_keys, cache.group, cache.indexer_compressor, s_.compressor);
}

}  // namespace hadal
