// Candidates of the lightning-indexer scores, best first.
#include "kernels/cpu/amx_index_score.h"
#include "kernels/cpu/avx2_index_score.h"
#include "kernels/cpu/avx512_index_score.h"
#include "kernels/cpu/ref_index_score.h"
#include "kernels/dispatch/candidates.h"
#include "kernels/dispatch/kernels.h"

namespace hadal {
namespace {

constexpr Candidate<IndexScoreFn> kIndexScore[] = {
    {"amx_index_score", needs_amx, amx_index_score},
    {"avx512_index_score", needs_avx512, avx512_index_score},
    {"avx2_index_score", needs_avx2, avx2_index_score},
    {"ref_index_score", any_device, ref_index_score},
};

}  // namespace

void choose_index_score(const Device& device, std::span<const std::string> without, Kernels& k) {
  k.index_score = choose<IndexScoreFn>("index_score", kIndexScore, device, without, k);
}

void index_score(Context& ctx, const Batch& batch, const IndexScore& s) {
  ctx.kernels.index_score(ctx, batch, s);
}

}  // namespace hadal
