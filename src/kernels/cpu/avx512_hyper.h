// hyper_pre for AVX-512. See hyper_flow.h.
#pragma once

#include "kernels/hyper.h"

namespace hadal {

void avx512_hyper_pre(Context& ctx, const Tensor& x, const HyperWeights& w, const HyperParams& p,
                      const Tensor& y, const Tensor& post, const Tensor& comb);

}  // namespace hadal
