// hyper_pre for AVX-512: the shared tiles at its vector width.
#include "kernels/cpu/avx512_hyper.h"

#include "kernels/cpu/avx512_math.h"
#include "kernels/cpu/hyper_flow.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")

#include "kernels/cpu/hyper_tiles.h"

#pragma GCC pop_options

namespace hadal {

void avx512_hyper_pre(Context& ctx, const Tensor& x, const HyperWeights& w, const HyperParams& p,
                      const Tensor& y, const Tensor& post, const Tensor& comb) {
  flow_hyper_pre<HyperTiles<Avx512>>(ctx, x, w, p, y, post, comb);
}

}  // namespace hadal
