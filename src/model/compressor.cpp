// One compressor, one step.
#include "model/compressor.h"

#include "kernels/copy.h"
#include "kernels/linear.h"

namespace hadal {

CompressorScratch::CompressorScratch(Arena& arena, int64_t t, int64_t width)
    : u(arena.make(DType::kF32, {t, width})),
      g(arena.make(DType::kF32, {t, width})),
      ug(arena.make(DType::kF32, {t, 2 * width})) {}

void run_compressor(Context& ctx, const Step& step, const CompressorWeights& w, int ratio,
                    int64_t dim, float eps, const Tensor& freqs, Compress::Quant quant,
                    const Tensor& x, const Tensor& entries, int group, const Tensor& ring,
                    const CompressorScratch& s) {
  int64_t t = x.shape[0], width = compressor_width(ratio, dim);
  Tensor u(s.u.data, DType::kF32, {t, width}), g(s.g.data, DType::kF32, {t, width});
  Tensor ug(s.ug.data, DType::kF32, {t, 2 * width});
  linear_pair(ctx, {x, {}}, w.wkv, w.wgate, u, g);
  compress_rows(ctx, step.batch, u, g, w.ape, ug);

  Compress c;
  c.ratio = ratio;
  c.overlap = ratio == 4;
  c.step_ug = ug;
  c.ring_ug = ring;
  c.norm = w.norm;
  c.eps = eps;
  c.freqs = freqs;
  c.quant = quant;
  c.entries = entries;
  c.table = step.pages[group];
  compress(ctx, step.batch, c);
  ring_write(ctx, step.batch, ug, ring);
}

}  // namespace hadal
