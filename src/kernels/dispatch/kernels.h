// The kernels that serve on this device: one pointer per op with candidates, chosen once at load.
// Ops whose only CPU candidate is the reference are called directly and are not listed.
#pragma once

#include "kernels/attn_mla.h"
#include "kernels/attn_sparse.h"
#include "kernels/hyper.h"
#include "kernels/index_score.h"
#include "kernels/linear.h"

namespace hadal {

struct RowKernels;  // cpu/row_kernels.h: the loops of the small row ops
extern const RowKernels kRefRows;

struct Kernels {
  // Chosen for few rows (decode) and for many (prefill); dispatch/linear.cpp says where they meet.
  LinearFn* linear_few = nullptr;
  LinearFn* linear_many = nullptr;
  GroupedLinearFn* grouped_linear_few = nullptr;
  GroupedLinearFn* grouped_linear_many = nullptr;
  BatchedLinearFn* batched_linear = nullptr;
  BatchedLinearFn* batched_linear_transposed = nullptr;
  SparseAttentionFn* sparse_attention = nullptr;
  MlaAttentionFn* mla_attention = nullptr;
  IndexScoreFn* index_score = nullptr;
  HyperPreFn* hyper_pre = nullptr;
  const RowKernels* rows = &kRefRows;

  std::vector<KernelChoice> table;  // every candidate of every op with the reason
};

// Walks each op's candidates in order of preference and takes the first that the device supports
// and `without` does not name. The reference always supports.
Kernels choose_kernels(const Device& device, std::span<const std::string> without = {});

// One per op, in dispatch/<op>.cpp: set their pointers and append to k.table.
void choose_linear(const Device&, std::span<const std::string> without, Kernels& k);
void choose_attention(const Device&, std::span<const std::string> without, Kernels& k);
void choose_index_score(const Device&, std::span<const std::string> without, Kernels& k);
void choose_hyper(const Device&, std::span<const std::string> without, Kernels& k);
void choose_rows(const Device&, std::span<const std::string> without, Kernels& k);

// The common walk. Returns the chosen launch and records the reasons.
template <class Launch>
Launch* choose(const char* op, std::span<const Candidate<Launch>> candidates, const Device& device,
               std::span<const std::string> without, Kernels& k) {
  Launch* chosen = nullptr;
  for (const auto& c : candidates) {
    std::string reason = c.supports(device);
    for (const auto& name : without)
      if (reason.empty() && name == c.name) reason = "left out by --without " + name;
    bool take = !chosen && reason.empty();
    if (take) chosen = c.launch;
    if (!take && reason.empty()) reason = "a preferred candidate serves";
    k.table.push_back({op, c.name, take, take ? "" : reason});
  }
  HADAL_CHECK(chosen, std::string("[") + op + "] no candidate is left: keep the reference one");
  return chosen;
}

}  // namespace hadal
