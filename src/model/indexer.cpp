// Index queries, scores in bounded chunks of rows, top-k.
#include "model/indexer.h"

#include <algorithm>
#include <cmath>

#include "kernels/index_score.h"
#include "kernels/topk.h"

namespace hadal {
namespace {

constexpr int64_t kScoreFloats = 8 << 20;  // scores held at once: bounds scratch at long context

}  // namespace

IndexerScratch::IndexerScratch(Arena& arena, const Config& c, const Numerics& numerics, int64_t t,
                               int64_t max_entries) {
  int64_t chunk = std::clamp<int64_t>(kScoreFloats / std::max<int64_t>(max_entries, 1), 1, t);
  // V3.2 keeps weights_proj in fp32 even in release numerics (spec V3.2 4.1 step 9).
  DType w = c.family == Family::kV4 ? numerics.activation : DType::kF32;
  q = arena.make(numerics.activation, {t, c.index_heads, c.index_dim});
  raw = arena.make(w, {t, c.index_heads});
  weights = arena.make(DType::kF32, {t, c.index_heads});
  scores = arena.make(DType::kF32, {chunk, std::max<int64_t>(max_entries, 1)});
  selected = arena.make(DType::kI32, {t, c.index_topk});
}

Indexer::Indexer(const Config& c, const Numerics& numerics, int ratio)
    : heads_(c.index_heads),
      dim_(c.index_dim),
      rope_(c.rope_dim),
      topk_(c.index_topk),
      ratio_(ratio),
      v4_(c.family == Family::kV4),
      quantize_(numerics.quantize_cache),
      round_scores_(v4_ && numerics.activation == DType::kBF16) {}

void Indexer::finish_vectors(Context& ctx, const Tensor& v, const Tensor& angles) const {
  // V4 rotates the last dims in adjacent pairs, V3.2 the first dims in halves.
  Tensor rotated = v4_ ? v.slice(2, dim_ - rope_, dim_) : v.slice(2, 0, rope_);
  rope(ctx, rotated, angles, v4_ ? RopePairs::kAdjacent : RopePairs::kHalves, false, rotated);
  if (!quantize_) return;
  Tensor rows = v.reshape({v.shape[0] * v.shape[1], dim_});
  hadamard(ctx, rows);
  if (v4_)
    qdq_fp4(ctx, rows);
  else
    qdq_fp8(ctx, rows, dim_);
}

bool Indexer::selects(const Batch& b) const { return b.longest / ratio_ > topk_; }

Tensor Indexer::select(Context& ctx, const Step& step, const LayerCache& cache,
                       const IndexerWeights& w, const Activation& qr, const Tensor& x,
                       const Tensor& angles, const IndexerScratch& s) const {
  int64_t t = step.batch.rows;
  Tensor q = s.q.slice(0, 0, t), raw = s.raw.slice(0, 0, t), weights = s.weights.slice(0, 0, t);
  linear(ctx, qr, w.wq_b, q.reshape({t, heads_ * dim_}));
  finish_vectors(ctx, q, angles);

  linear(ctx, {x, {}}, w.weights_proj, raw);
  auto scale = static_cast<float>(1.0 / std::sqrt(double(dim_) * double(heads_)));
  index_weights(ctx, raw, scale, round_scores_, weights);

  Tensor selected = s.selected.slice(0, 0, t);
  IndexScore score;
  score.q = q;
  score.weights = weights;
  score.keys = cache.index_keys;
  score.table = step.pages[cache.group];
  score.ratio = ratio_;
  score.round_bf16 = round_scores_;
  for (int64_t row0 = 0; row0 < t; row0 += s.scores.shape[0]) {
    int64_t rows = std::min(s.scores.shape[0], t - row0);
    score.row0 = static_cast<int32_t>(row0);
    score.rows = static_cast<int32_t>(rows);
    score.scores = s.scores.slice(0, 0, rows);
    index_score(ctx, step.batch, score);
    topk(ctx, step.batch, score.row0, score.scores, ratio_, selected.slice(0, row0, row0 + rows));
  }
  return selected;
}

}  // namespace hadal
