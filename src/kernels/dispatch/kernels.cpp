// The choice of every op's kernel, made once at load.
#include "kernels/dispatch/kernels.h"

#include "kernels/gpu/portable.h"

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

int64_t workspace_bytes(const Device& device, const WorkspaceShapes& s) {
  if (!device.is_gpu()) return 0;
  return device.portable->attention_split_workspace(kFewRowsSplit, s.heads, s.values, s.max_keys);
}

}  // namespace hadal
