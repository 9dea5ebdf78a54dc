// AVX2 attention: the shared FMA loops at eight lanes.
#include "kernels/cpu/avx2_attention.h"

#include "kernels/cpu/attn_flow.h"
#include "kernels/cpu/avx2_math.h"

HADAL_TARGET_BEGIN(HADAL_TARGET_AVX2)

#include "kernels/cpu/attn_tiles.h"

HADAL_TARGET_END

namespace hadal {

void avx2_sparse_attention(Context& ctx, const Batch& batch, const SparseAttention& a) {
  flow_sparse<FmaTiles<Avx2>>(ctx, batch, a);
}

void avx2_mla_attention(Context& ctx, const Batch& batch, const MlaAttention& a) {
  flow_mla<FmaTiles<Avx2>>(ctx, batch, a);
}

}  // namespace hadal
