// hyper_pre for AVX2 with FMA: the shared tiles at its vector width.
#include "kernels/cpu/avx2_hyper.h"

#include "kernels/cpu/avx2_math.h"
#include "kernels/cpu/hyper_flow.h"

HADAL_TARGET_BEGIN(HADAL_TARGET_AVX2)

#include "kernels/cpu/hyper_tiles.h"

HADAL_TARGET_END

namespace hadal {

void avx2_hyper_pre(Context& ctx, const Tensor& x, const HyperWeights& w, const HyperParams& p,
                    const Tensor& y, const Tensor& post, const Tensor& comb) {
  flow_hyper_pre<HyperTiles<Avx2>>(ctx, x, w, p, y, post, comb);
}

}  // namespace hadal
