// Candidates of mHC's mixes, best first.
#include "kernels/cpu/avx2_hyper.h"
#include "kernels/cpu/avx512_hyper.h"
#include "kernels/cpu/ref_hyper.h"
#include "kernels/dispatch/candidates.h"
#include "kernels/dispatch/kernels.h"

namespace hadal {
namespace {

constexpr Candidate<HyperPreFn> kHyperPre[] = {
    {"avx512_hyper_pre", needs_avx512, avx512_hyper_pre},
    {"avx2_hyper_pre", needs_avx2, avx2_hyper_pre},
    {"ref_hyper_pre", any_device, ref_hyper_pre},
};

}  // namespace

void choose_hyper(const Device& device, std::span<const std::string> without, Kernels& k) {
  k.hyper_pre = choose<HyperPreFn>("hyper_pre", kHyperPre, device, without, k);
}

void hyper_pre(Context& ctx, const Tensor& x, const HyperWeights& w, const HyperParams& p,
               const Tensor& y, const Tensor& post, const Tensor& comb) {
  ctx.kernels.hyper_pre(ctx, x, w, p, y, post, comb);
}

}  // namespace hadal
