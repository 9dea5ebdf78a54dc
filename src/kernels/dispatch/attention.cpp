// Candidates of the two attentions, best first.
#include "kernels/cpu/amx_attention.h"
#include "kernels/cpu/avx2_attention.h"
#include "kernels/cpu/avx512_attention.h"
#include "kernels/cpu/ref_attn_mla.h"
#include "kernels/cpu/ref_attn_sparse.h"
#include "kernels/dispatch/candidates.h"

namespace hadal {
namespace {

constexpr Candidate<SparseAttentionFn> kSparseFew[] = {
    {"amx_sparse_attention", needs_amx, amx_sparse_attention},
    {"avx512_sparse_attention", needs_avx512, avx512_sparse_attention},
    {"avx2_sparse_attention", needs_avx2, avx2_sparse_attention},
    {"portable_sparse_attention_matrix", needs_tensor_cores,
     OnStreamWithWorkspace<&PortableKernels::sparse_attention_matrix>::launch},
    {"portable_sparse_attention_split", needs_gpu,
     OnStreamWithWorkspace<&PortableKernels::sparse_attention_split>::launch},
    {"portable_sparse_attention", needs_gpu, OnStream<&PortableKernels::sparse_attention>::launch},
    {"ref_sparse_attention", needs_cpu, ref_sparse_attention},
};

constexpr Candidate<SparseAttentionFn> kSparseMany[] = {
    {"amx_sparse_attention", needs_amx, amx_sparse_attention},
    {"avx512_sparse_attention", needs_avx512, avx512_sparse_attention},
    {"avx2_sparse_attention", needs_avx2, avx2_sparse_attention},
    {"portable_sparse_attention", needs_gpu, OnStream<&PortableKernels::sparse_attention>::launch},
    {"ref_sparse_attention", needs_cpu, ref_sparse_attention},
};

constexpr Candidate<MlaAttentionFn> kMlaFew[] = {
    {"amx_mla_attention", needs_amx, amx_mla_attention},
    {"avx512_mla_attention", needs_avx512, avx512_mla_attention},
    {"avx2_mla_attention", needs_avx2, avx2_mla_attention},
    {"portable_mla_attention_matrix", needs_tensor_cores,
     OnStreamWithWorkspace<&PortableKernels::mla_attention_matrix>::launch},
    {"portable_mla_attention_split", needs_gpu,
     OnStreamWithWorkspace<&PortableKernels::mla_attention_split>::launch},
    {"portable_mla_attention", needs_gpu, OnStream<&PortableKernels::mla_attention>::launch},
    {"ref_mla_attention", needs_cpu, ref_mla_attention},
};

constexpr Candidate<MlaAttentionFn> kMlaMany[] = {
    {"amx_mla_attention", needs_amx, amx_mla_attention},
    {"avx512_mla_attention", needs_avx512, avx512_mla_attention},
    {"avx2_mla_attention", needs_avx2, avx2_mla_attention},
    {"portable_mla_attention", needs_gpu, OnStream<&PortableKernels::mla_attention>::launch},
    {"ref_mla_attention", needs_cpu, ref_mla_attention},
};

}  // namespace

void choose_attention(const Device& device, std::span<const std::string> without, Kernels& k) {
  k.sparse_attention = {
      choose<SparseAttentionFn>("sparse_attention_few", kSparseFew, device, without, k),
      choose<SparseAttentionFn>("sparse_attention_many", kSparseMany, device, without, k)};
  k.mla_attention = {choose<MlaAttentionFn>("mla_attention_few", kMlaFew, device, without, k),
                     choose<MlaAttentionFn>("mla_attention_many", kMlaMany, device, without, k)};
}

void sparse_attention(Context& ctx, const Batch& batch, const SparseAttention& a) {
  const auto& by = ctx.kernels.sparse_attention;
  (batch.rows <= kFewRowsSplit ? by.few : by.many)(ctx, batch, a);
}

void mla_attention(Context& ctx, const Batch& batch, const MlaAttention& a) {
  const auto& by = ctx.kernels.mla_attention;
  (batch.rows <= kFewRowsSplit ? by.few : by.many)(ctx, batch, a);
}

}  // namespace hadal
