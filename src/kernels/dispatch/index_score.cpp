// Candidates of the lightning-indexer scores, best first.
#include "kernels/cpu/ref_index_score.h"
#include "kernels/dispatch/kernels.h"

namespace hadal {
namespace {

std::string always(const Device&) { return ""; }

constexpr Candidate<IndexScoreFn> kIndexScore[] = {
    {"ref_index_score", always, ref_index_score},
};

}  // namespace

void choose_index_score(const Device& device, std::span<const std::string> without, Kernels& k) {
  k.index_score = choose<IndexScoreFn>("index_score", kIndexScore, device, without, k);
}

void index_score(Context& ctx, const Batch& batch, const IndexScore& s) {
  ctx.kernels.index_score(ctx, batch, s);
}

}  // namespace hadal
