// Candidates of the two attentions, best first.
#include "kernels/cpu/ref_attn_mla.h"
#include "kernels/cpu/ref_attn_sparse.h"
#include "kernels/dispatch/kernels.h"

namespace hadal {
namespace {

std::string always(const Device&) { return ""; }

constexpr Candidate<SparseAttentionFn> kSparse[] = {
    {"ref_sparse_attention", always, ref_sparse_attention},
};

constexpr Candidate<MlaAttentionFn> kMla[] = {
    {"ref_mla_attention", always, ref_mla_attention},
};

}  // namespace

void choose_attention(const Device& device, std::span<const std::string> without, Kernels& k) {
  k.sparse_attention = choose<SparseAttentionFn>("sparse_attention", kSparse, device, without, k);
  k.mla_attention = choose<MlaAttentionFn>("mla_attention", kMla, device, without, k);
}

void sparse_attention(Context& ctx, const Batch& batch, const SparseAttention& a) {
  ctx.kernels.sparse_attention(ctx, batch, a);
}

void mla_attention(Context& ctx, const Batch& batch, const MlaAttention& a) {
  ctx.kernels.mla_attention(ctx, batch, a);
}

}  // namespace hadal
