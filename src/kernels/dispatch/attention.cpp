// Candidates of the two attentions, best first.
#include "kernels/cpu/amx_attention.h"
#include "kernels/cpu/avx2_attention.h"
#include "kernels/cpu/avx512_attention.h"
#include "kernels/cpu/ref_attn_mla.h"
#include "kernels/cpu/ref_attn_sparse.h"
#include "kernels/dispatch/candidates.h"
#include "kernels/dispatch/kernels.h"

namespace hadal {
namespace {

constexpr Candidate<SparseAttentionFn> kSparse[] = {
    {"amx_sparse_attention", needs_amx, amx_sparse_attention},
    {"avx512_sparse_attention", needs_avx512, avx512_sparse_attention},
    {"avx2_sparse_attention", needs_avx2, avx2_sparse_attention},
    {"ref_sparse_attention", any_device, ref_sparse_attention},
};

constexpr Candidate<MlaAttentionFn> kMla[] = {
    {"amx_mla_attention", needs_amx, amx_mla_attention},
    {"avx512_mla_attention", needs_avx512, avx512_mla_attention},
    {"avx2_mla_attention", needs_avx2, avx2_mla_attention},
    {"ref_mla_attention", any_device, ref_mla_attention},
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
