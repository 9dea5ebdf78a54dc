// Indexer scores for AMX: 16 keys x 16 heads per tile. fp32 goes to the AVX-512 candidate.
#pragma once

#include "kernels/index_score.h"

namespace hadal {

void amx_index_score(Context& ctx, const Batch& batch, const IndexScore& s);

}  // namespace hadal
