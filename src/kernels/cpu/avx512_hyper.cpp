// hyper_pre for AVX-512: the shared tiles at its vector width.
#include "kernels/cpu/avx512_hyper.h"

#include "kernels/cpu/avx512_math.h"
#include "kernels/cpu/hyper_flow.h"

HADAL_TARGET_BEGIN(HADAL_TARGET_AVX512)

#include "kernels/cpu/hyper_tiles.h"

HADAL_TARGET_END

namespace hadal {

void avx512_hyper_pre(Context& ctx, const Tensor& x, const HyperWeights& w, const HyperParams& p,
                      const Tensor& y, const Tensor& post, const Tensor& comb) {
  flow_hyper_pre<HyperTiles<Avx512>>(ctx, x, w, p, y, post, comb);
}

}  // namespace hadal
