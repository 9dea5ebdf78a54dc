// Indexer scores for AVX2 with FMA.
#pragma once

#include "kernels/index_score.h"

namespace hadal {

void avx2_index_score(Context& ctx, const Batch& batch, const IndexScore& s);

}  // namespace hadal
