// The choice of every op's kernel, made once at load.
#include "kernels/dispatch/kernels.h"

namespace hadal {

Kernels choose_kernels(const Device& device, std::span<const std::string> without) {
  Kernels k;
  choose_linear(device, without, k);
  choose_attention(device, without, k);
  choose_index_score(device, without, k);
  choose_hyper(device, without, k);
  choose_row_ops(device, without, k);
  return k;
}

}  // namespace hadal
