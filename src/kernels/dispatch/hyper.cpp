// Candidates of mHC's mixes, best first.
#include "kernels/cpu/avx2_hyper.h"
#include "kernels/cpu/avx512_hyper.h"
#include "kernels/cpu/ref_hyper.h"
#include "kernels/dispatch/candidates.h"

namespace hadal {
namespace {

constexpr Candidate<HyperPreFn> kHyperPreFew[] = {
    {"avx512_hyper_pre", needs_avx512, avx512_hyper_pre},
    {"avx2_hyper_pre", needs_avx2, avx2_hyper_pre},
    {"portable_hyper_pre_split", needs_gpu,
     OnStreamWithWorkspace<&PortableKernels::hyper_pre_split>::launch},
    {"portable_hyper_pre", needs_gpu, OnStream<&PortableKernels::hyper_pre>::launch},
    {"ref_hyper_pre", needs_cpu, ref_hyper_pre},
};
constexpr Candidate<HyperPreFn> kHyperPreMany[] = {
    {"avx512_hyper_pre", needs_avx512, avx512_hyper_pre},
    {"avx2_hyper_pre", needs_avx2, avx2_hyper_pre},
    {"portable_hyper_pre", needs_gpu, OnStream<&PortableKernels::hyper_pre>::launch},
    {"ref_hyper_pre", needs_cpu, ref_hyper_pre},
};

using HyperHeadFn = decltype(hadal::hyper_head);
constexpr Candidate<HyperHeadFn> kHyperHeadFew[] = {
    {"portable_hyper_head_split", needs_gpu,
     OnStreamWithWorkspace<&PortableKernels::hyper_head_split>::launch},
    {"portable_hyper_head", needs_gpu, OnStream<&PortableKernels::hyper_head>::launch},
    {"cpu_hyper_head", needs_cpu, cpu::hyper_head},
};
constexpr Candidate<HyperHeadFn> kHyperHeadMany[] = {
    {"portable_hyper_head", needs_gpu, OnStream<&PortableKernels::hyper_head>::launch},
    {"cpu_hyper_head", needs_cpu, cpu::hyper_head},
};

// Where no fused kernel serves.
void hyper_post_then_pre(Context& ctx, const Tensor& a, const Tensor& x, const HyperWeights& w,
                         const HyperParams& p, const Tensor& y, const Tensor& post,
                         const Tensor& comb) {
  hyper_post(ctx, a, post, comb, x);
  hyper_pre(ctx, x, w, p, y, post, comb);
}

using SeamFn = decltype(hadal::hyper_post_pre);
constexpr Candidate<SeamFn> kSeamFew[] = {
    {"portable_hyper_post_pre_split", needs_gpu,
     OnStreamWithWorkspace<&PortableKernels::hyper_post_pre_split>::launch},
    {"hyper_post_then_pre", any_device, hyper_post_then_pre},
};
constexpr Candidate<SeamFn> kSeamMany[] = {
    {"hyper_post_then_pre", any_device, hyper_post_then_pre},
};

}  // namespace

void choose_hyper(const Device& device, std::span<const std::string> without, Kernels& k) {
  k.hyper_pre = {choose<HyperPreFn>("hyper_pre_few", kHyperPreFew, device, without, k),
                 choose<HyperPreFn>("hyper_pre_many", kHyperPreMany, device, without, k)};
  k.hyper_post_pre = {choose<SeamFn>("hyper_post_pre_few", kSeamFew, device, without, k),
                      choose<SeamFn>("hyper_post_pre_many", kSeamMany, device, without, k)};
  k.hyper_head = {choose<HyperHeadFn>("hyper_head_few", kHyperHeadFew, device, without, k),
                  choose<HyperHeadFn>("hyper_head_many", kHyperHeadMany, device, without, k)};
}

void hyper_pre(Context& ctx, const Tensor& x, const HyperWeights& w, const HyperParams& p,
               const Tensor& y, const Tensor& post, const Tensor& comb) {
  const auto& by = ctx.kernels.hyper_pre;
  (x.shape[0] <= kFewRowsSplit ? by.few : by.many)(ctx, x, w, p, y, post, comb);
}

void hyper_post_pre(Context& ctx, const Tensor& a, const Tensor& x, const HyperWeights& w,
                    const HyperParams& p, const Tensor& y, const Tensor& post, const Tensor& comb) {
  if (a.empty()) return hyper_pre(ctx, x, w, p, y, post, comb);
  const auto& by = ctx.kernels.hyper_post_pre;
  (x.shape[0] <= kFewRowsSplit ? by.few : by.many)(ctx, a, x, w, p, y, post, comb);
}

void hyper_head(Context& ctx, const Tensor& x, const HyperWeights& w, const HyperParams& p,
                const Tensor& y) {
  const auto& by = ctx.kernels.hyper_head;
  (x.shape[0] <= kFewRowsSplit ? by.few : by.many)(ctx, x, w, p, y);
}

}  // namespace hadal
