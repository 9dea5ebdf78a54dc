// The row loops for AVX-512, 16 lanes at a time.
#include <utility>

#include "kernels/cpu/exp.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/cpu/target.h"

HADAL_TARGET_BEGIN(HADAL_TARGET_AVX512)

#include "kernels/cpu/row_loops.h"

HADAL_TARGET_END

namespace hadal {

const RowKernels kAvx512Rows = {Rows<16>::loops<float>(), Rows<16>::loops<BF16>()};

}  // namespace hadal
