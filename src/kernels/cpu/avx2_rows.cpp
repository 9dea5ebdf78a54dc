// The row loops for AVX2, 8 lanes at a time.
#include <utility>

#include "kernels/cpu/avx2_math.h"
#include "kernels/cpu/row_kernels.h"

HADAL_TARGET_BEGIN(HADAL_TARGET_AVX2)

#include "kernels/cpu/row_loops.h"

HADAL_TARGET_END

namespace hadal {

const RowKernels kAvx2Rows = {Rows<8>::loops<float>(), Rows<8>::loops<BF16>()};

}  // namespace hadal
