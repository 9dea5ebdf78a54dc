// Reference of index_score.h.
#pragma once

#include "kernels/index_score.h"

namespace hadal {

void ref_index_score(Context& ctx, const Batch& batch, const IndexScore& s);

}  // namespace hadal
