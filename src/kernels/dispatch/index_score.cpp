// Candidates of the lightning-indexer scores and of top-k, best first.
#include "kernels/cpu/amx_index_score.h"
#include "kernels/cpu/avx2_index_score.h"
#include "kernels/cpu/avx512_index_score.h"
#include "kernels/cpu/ref_index_score.h"
#include "kernels/dispatch/candidates.h"

namespace hadal {
namespace {

constexpr Candidate<IndexScoreFn> kIndexScore[] = {
    {"amx_index_score", needs_amx, amx_index_score},
    {"avx512_index_score", needs_avx512, avx512_index_score},
    {"avx2_index_score", needs_avx2, avx2_index_score},
    {"portable_index_score", needs_gpu, OnStream<&PortableKernels::index_score>::launch},
    {"ref_index_score", needs_cpu, ref_index_score},
};

using TopkFn = decltype(hadal::topk);
constexpr Candidate<TopkFn> kTopk[] = {
    {"portable_topk", needs_gpu, OnStream<&PortableKernels::topk>::launch},
    {"cpu_topk", needs_cpu, cpu::topk},
};

}  // namespace

void choose_index_score(const Device& device, std::span<const std::string> without, Kernels& k) {
  auto* score = choose<IndexScoreFn>("index_score", kIndexScore, device, without, k);
  k.index_score = {score, score};
  auto* best = choose<TopkFn>("topk", kTopk, device, without, k);
  k.topk = {best, best};
}

void index_score(Context& ctx, const Batch& batch, const IndexScore& s) {
  const auto& by = ctx.kernels.index_score;
  (s.rows <= kFewRowsSplit ? by.few : by.many)(ctx, batch, s);
}

void topk(Context& ctx, const Batch& batch, int32_t row0, const Tensor& scores, int ratio,
          const Tensor& out) {
  const auto& by = ctx.kernels.topk;
  (scores.shape[0] <= kFewRowsSplit ? by.few : by.many)(ctx, batch, row0, scores, ratio, out);
}

}  // namespace hadal
