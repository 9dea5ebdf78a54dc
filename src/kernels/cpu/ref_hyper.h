// Reference of hyper.h's hyper_pre: double sums.
#pragma once

#include "kernels/hyper.h"

namespace hadal {

void ref_hyper_pre(Context& ctx, const Tensor& x, const HyperWeights& w, const HyperParams& p,
                   const Tensor& y, const Tensor& post, const Tensor& comb);

}  // namespace hadal
