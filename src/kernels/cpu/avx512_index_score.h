// Indexer scores for AVX-512: bf16 by VDPBF16PS, fp32 by FMA.
#pragma once

#include "kernels/index_score.h"

namespace hadal {

void avx512_index_score(Context& ctx, const Batch& batch, const IndexScore& s);

}  // namespace hadal
