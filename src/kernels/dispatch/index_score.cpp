// Candidates of the lightning-indexer scores and of top-k, best first.
#include "kernels/cpu/amx_index_score.h"
#include "kernels/cpu/avx2_index_score.h"
#include "kernels/cpu/avx512_index_score.h"
#include "kernels/cpu/ref_index_score.h"
#include "kernels/dispatch/candidates.h"

namespace hadal {
namespace {

constexpr Candidate<IndexScoreFn> kIndexScoreFew[] = {
    {"amx_index_score", needs_amx, amx_index_score},
    {"avx512_index_score", needs_avx512, avx512_index_score},
    {"avx2_index_score", needs_avx2, avx2_index_score},
    {"portable_index_score_few", needs_gpu, OnStream<&PortableKernels::index_score_few>::launch},
    {"portable_index_score", needs_gpu, OnStream<&PortableKernels::index_score>::launch},
    {"ref_index_score", needs_cpu, ref_index_score},
};
constexpr Candidate<IndexScoreFn> kIndexScoreMany[] = {
    {"amx_index_score", needs_amx, amx_index_score},
    {"avx512_index_score", needs_avx512, avx512_index_score},
    {"avx2_index_score", needs_avx2, avx2_index_score},
    {"portable_index_score", needs_gpu, OnStream<&PortableKernels::index_score>::launch},
    {"ref_index_score", needs_cpu, ref_index_score},
};

using TopkFn = decltype(hadal::topk);
constexpr Candidate<TopkFn> kTopkFew[] = {
    {"portable_topk_few", needs_gpu, OnStreamWithWorkspace<&PortableKernels::topk_few>::launch},
    {"portable_topk", needs_gpu, OnStream<&PortableKernels::topk>::launch},
    {"cpu_topk", needs_cpu, cpu::topk},
};
constexpr Candidate<TopkFn> kTopkMany[] = {
    {"portable_topk", needs_gpu, OnStream<&PortableKernels::topk>::launch},
    {"cpu_topk", needs_cpu, cpu::topk},
};

}  // namespace

void choose_index_score(const Device& device, std::span<const std::string> without, Kernels& k) {
  k.index_score = {choose<IndexScoreFn>("index_score_few", kIndexScoreFew, device, without, k),
                   choose<IndexScoreFn>("index_score_many", kIndexScoreMany, device, without, k)};
  k.topk = {choose<TopkFn>("topk_few", kTopkFew, device, without, k),
            choose<TopkFn>("topk_many", kTopkMany, device, without, k)};
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
