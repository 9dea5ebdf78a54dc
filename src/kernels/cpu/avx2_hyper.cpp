// hyper_pre for AVX2 with FMA: the shared tiles at its vector width.
#include "kernels/cpu/avx2_hyper.h"

#include "kernels/cpu/avx2_math.h"
#include "kernels/cpu/hyper_flow.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma")

#include "kernels/cpu/hyper_tiles.h"

#pragma GCC pop_options

namespace hadal {

void avx2_hyper_pre(Context& ctx, const Tensor& x, const HyperWeights& w, const HyperParams& p,
                    const Tensor& y, const Tensor& post, const Tensor& comb) {
  flow_hyper_pre<HyperTiles<Avx2>>(ctx, x, w, p, y, post, comb);
}

}  // namespace hadal
