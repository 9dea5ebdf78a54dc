// The row loops for any CPU, 4 lanes at a time.
#include <utility>

#include "kernels/cpu/exp.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/cpu/row_loops.h"

namespace hadal {

const RowKernels kRefRows = {Rows<4>::loops<float>(), Rows<4>::loops<BF16>()};

}  // namespace hadal
