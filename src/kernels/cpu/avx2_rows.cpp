// The row loops for AVX2, 8 lanes at a time.
#include "kernels/cpu/exp.h"
#include "kernels/cpu/row_kernels.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma")

#include "kernels/cpu/row_loops.h"

#pragma GCC pop_options

namespace hadal {

const RowKernels kAvx2Rows = {Rows<8>::loops<float>(), Rows<8>::loops<BF16>()};

}  // namespace hadal
