// Candidates of the row loops, best first.
#include "kernels/cpu/row_kernels.h"
#include "kernels/dispatch/candidates.h"
#include "kernels/dispatch/kernels.h"

namespace hadal {

void choose_rows(const Device& device, std::span<const std::string> without, Kernels& k) {
  const Candidate<const RowKernels> candidates[] = {
      {"avx512_rows", needs_avx512, &kAvx512Rows},
      {"avx2_rows", needs_avx2, &kAvx2Rows},
      {"ref_rows", any_device, &kRefRows},
  };
  k.rows = choose<const RowKernels>("rows", candidates, device, without, k);
}

}  // namespace hadal
