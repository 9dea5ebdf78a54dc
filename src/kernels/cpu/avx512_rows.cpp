// The row loops for AVX-512, 16 lanes at a time.
#include "kernels/cpu/exp.h"
#include "kernels/cpu/row_kernels.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")

#include "kernels/cpu/row_loops.h"

#pragma GCC pop_options

namespace hadal {

const RowKernels kAvx512Rows = {Rows<16>::loops<float>(), Rows<16>::loops<BF16>()};

}  // namespace hadal
