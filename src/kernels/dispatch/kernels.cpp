// The choice of every op's kernel, made once at load.
#include "kernels/dispatch/kernels.h"

#include <algorithm>

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
  const PortableKernels& p = *device.portable;
  int64_t n = p.attention_split_workspace(kFewRowsSplit, s.heads, s.values, s.max_keys);
  if (s.mixes > 0) n = std::max(n, p.hyper_split_workspace(kFewRowsSplit, s.mixes));
  if (s.topk > 0) n = std::max(n, p.topk_few_workspace(kFewRowsSplit, s.scores, s.topk));
  return n;
}

}  // namespace hadal
