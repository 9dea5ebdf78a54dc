// The kernels that serve on this device: one pointer per op, chosen once at load, best candidate
// first: tuned, portable (on a GPU), reference.
#pragma once

#include "kernels/attn_mla.h"
#include "kernels/attn_sparse.h"
#include "kernels/cpu/ops.h"
#include "kernels/linear.h"

namespace hadal {

struct RowKernels;  // cpu/row_kernels.h: the loops of the small row ops
extern const RowKernels kRefRows;

// One op's choice for steps of few rows (decode) and of many (prefill); its dispatch file says
// where they meet.
template <class Launch>
struct ByRows {
  Launch *few = nullptr, *many = nullptr;
};

// On a GPU, more rows than this fill it without splitting a row's keys or columns over blocks.
inline constexpr int64_t kFewRowsSplit = 64;

// What the workspace of a context must hold: the largest shapes that its ops will see.
struct WorkspaceShapes {
  // Attention: local heads, value width, keys of a row.
  int64_t heads = 0, values = 0, max_keys = 0;
  int64_t mixes = 0;             // mHC: rows of fn; 0 without
  int64_t scores = 0, topk = 0;  // indexer: entries of a row, K; 0 without
};

// Bytes of Context::workspace for steps of those shapes on this device; 0 on the CPU.
int64_t workspace_bytes(const Device& device, const WorkspaceShapes& shapes);

struct Kernels {
  ByRows<decltype(hadal::linear)> linear;
  ByRows<decltype(hadal::grouped_linear)> grouped_linear;
  ByRows<decltype(hadal::batched_linear)> batched_linear;
  ByRows<decltype(hadal::batched_linear_transposed)> batched_linear_transposed;
  ByRows<decltype(hadal::sparse_attention)> sparse_attention;
  ByRows<decltype(hadal::mla_attention)> mla_attention;
  ByRows<decltype(hadal::index_score)> index_score;
  ByRows<decltype(hadal::topk)> topk;
  ByRows<decltype(hadal::hyper_pre)> hyper_pre;
  ByRows<decltype(hadal::hyper_post_pre)> hyper_post_pre;
  ByRows<decltype(hadal::hyper_head)> hyper_head;
  ByRows<decltype(hadal::linear_pair)> linear_pair;

  decltype(hadal::rms_norm)* rms_norm = nullptr;
  decltype(hadal::add_rms_norm)* add_rms_norm = nullptr;
  decltype(hadal::layer_norm)* layer_norm = nullptr;
  decltype(hadal::quantize_fp8)* quantize_fp8 = nullptr;
  decltype(hadal::add_rms_norm_fp8)* add_rms_norm_fp8 = nullptr;
  decltype(hadal::qdq_fp8)* qdq_fp8 = nullptr;
  decltype(hadal::qdq_fp4)* qdq_fp4 = nullptr;
  decltype(hadal::hadamard)* hadamard = nullptr;
  decltype(hadal::rope_angles)* rope_angles = nullptr;
  decltype(hadal::rope)* rope = nullptr;
  decltype(hadal::embed)* embed = nullptr;
  decltype(hadal::ring_write)* ring_write = nullptr;
  decltype(hadal::page_write)* page_write = nullptr;
  decltype(hadal::gather_rows)* gather_rows = nullptr;
  decltype(hadal::route)* route = nullptr;
  decltype(hadal::moe_sort)* moe_sort = nullptr;
  decltype(hadal::swiglu)* swiglu = nullptr;
  decltype(hadal::moe_combine)* moe_combine = nullptr;
  decltype(hadal::compress)* compress = nullptr;
  decltype(hadal::compress_rows)* compress_rows = nullptr;
  decltype(hadal::index_weights)* index_weights = nullptr;
  decltype(hadal::hyper_post)* hyper_post = nullptr;

  const RowKernels* rows = &kRefRows;  // the CPU's row loops

  std::vector<KernelChoice> table;  // every candidate of every op with the reason
  std::string fault;  // empty, or the sentence about an op that no candidate is left for
};

// Walks each op's candidates in order of preference and takes the first that the device supports
// and `without` does not name. Where none is left, `fault` says so and nothing may be run.
Kernels choose_kernels(const Device& device, std::span<const std::string> without = {});

// One per op, in dispatch/<op>.cpp: set their pointers and append to k.table.
void choose_linear(const Device&, std::span<const std::string> without, Kernels& k);
void choose_attention(const Device&, std::span<const std::string> without, Kernels& k);
void choose_index_score(const Device&, std::span<const std::string> without, Kernels& k);
void choose_hyper(const Device&, std::span<const std::string> without, Kernels& k);
void choose_row_ops(const Device&, std::span<const std::string> without, Kernels& k);

// The common walk. Returns the chosen launch, or null, and records the reasons.
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
  if (!chosen && k.fault.empty())
    k.fault = std::string("no kernel is left for ") + op + ": give fewer --without";
  return chosen;
}

}  // namespace hadal
