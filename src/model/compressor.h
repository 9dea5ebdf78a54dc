// V4's KV compressor around its op: projections, running rows, emission of finished entries.
// Source: spec V4 4.2.
#pragma once

#include "base/buffer.h"
#include "kernels/compress.h"
#include "model/config.h"
#include "model/numerics.h"
#include "model/step.h"
#include "model/weights.h"

namespace hadal {

struct CompressorScratch {
  Tensor u, g;  // [T, c*Dc] f32
  Tensor ug;    // [T, 2*c*Dc] f32

  CompressorScratch() = default;
  CompressorScratch(Arena& arena, int64_t max_rows, int64_t max_width);
};

// Feeds the step's rows x [T, C] (the normed layer input) to one compressor: writes the entries
// that they complete to `entries` and keeps the rows that later entries need in `ring`.
// dim: width Dc of an entry; freqs [R/2] f32; quant as the entry's consumer wants it.
void run_compressor(Context& ctx, const Step& step, const CompressorWeights& w, int ratio,
                    int64_t dim, float eps, const Tensor& freqs, Compress::Quant quant,
                    const Tensor& x, const Tensor& entries, int group, const Tensor& ring,
                    const CompressorScratch& s);

// Channels of a token's u (or g) row: overlapping compressors (ratio 4) keep two halves.
constexpr int64_t compressor_width(int ratio, int64_t dim) { return ratio == 4 ? 2 * dim : dim; }

}  // namespace hadal
