// The lightning indexer: which earlier entries a token attends to. One implementation for V3.2
// (one key per token) and V4's ratio-4 layers (one key per entry).
// Source: spec V4 4.3, spec V3.2 4.1.
#pragma once

#include "kernels/rope.h"
#include "model/operand.h"
#include "model/step.h"
#include "model/weights.h"

namespace hadal {

struct IndexerScratch {
  Tensor q;         // [T, Hi, Di]
  Tensor raw;       // [T, Hi] weights_proj's output
  Tensor weights;   // [T, Hi] f32
  Tensor scores;    // [chunk, max entries] f32
  Tensor selected;  // [T, K] i32

  IndexerScratch() = default;
  // max_entries: visible entries of a sequence at the longest context.
  IndexerScratch(Arena& arena, const Config& config, const Numerics& numerics, int64_t max_rows,
                 int64_t max_entries);
};

class Indexer {
 public:
  Indexer(const Config& config, const Numerics& numerics, int ratio);

  // Rotates (and, where the cache is quantised, Hadamards and quantises) index vectors in place:
  // queries [T, Hi, Di] and V3.2's keys [T, 1, Di].
  void finish_vectors(Context& ctx, const Tensor& v, const Tensor& angles) const;

  // True where some row of the step sees more than index_topk entries; else every row attends to
  // all it sees and select() may be skipped (keys must be stored all the same).
  bool selects(const Batch& batch) const;

  // The entries each row attends to, [T, K] i32, -1 where fewer. qr: the normed query latent, as
  // the operand for wq_b; x [T, C] the normed layer input. Keys of this step must be stored.
  Tensor select(Context& ctx, const Step& step, const LayerCache& cache, const IndexerWeights& w,
                const Activation& qr, const Tensor& x, const Tensor& angles,
                const IndexerScratch& s) const;

 private:
  int64_t heads_, dim_, rope_, topk_;
  int ratio_;
  bool v4_, quantize_, round_scores_;
};

}  // namespace hadal
