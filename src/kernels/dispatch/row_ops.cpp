// The ops that have one candidate for each kind of device: portable on a GPU, and the CPU's, whose
// row loops are chosen by the instruction set.
#include "kernels/cpu/row_kernels.h"
#include "kernels/dispatch/candidates.h"
#include "kernels/dispatch/kernels.h"
#include "kernels/gpu/portable.h"

namespace hadal {
namespace {

void choose_rows(const Device& device, std::span<const std::string> without, Kernels& k) {
  const Candidate<const RowKernels> candidates[] = {
      {"avx512_rows", needs_avx512, &kAvx512Rows},
      {"avx2_rows", needs_avx2, &kAvx2Rows},
      {"ref_rows", any_device, &kRefRows},
  };
  k.rows = choose<const RowKernels>("rows", candidates, device, without, k);
}

}  // namespace

void choose_row_ops(const Device& device, std::span<const std::string> without, Kernels& k) {
  if (!device.is_gpu()) choose_rows(device, without, k);
#define HADAL_CHOOSE(op)                                                      \
  {                                                                           \
    const Candidate<decltype(hadal::op)> candidates[] = {                     \
        {"portable_" #op, needs_gpu, OnStream<&PortableKernels::op>::launch}, \
        {"cpu_" #op, needs_cpu, cpu::op}};                                    \
    k.op = choose<decltype(hadal::op)>(#op, candidates, device, without, k);  \
  }
  HADAL_CHOOSE(rms_norm)
  HADAL_CHOOSE(add_rms_norm)
  HADAL_CHOOSE(layer_norm)
  HADAL_CHOOSE(quantize_fp8)
  HADAL_CHOOSE(add_rms_norm_fp8)
  HADAL_CHOOSE(qdq_fp8)
  HADAL_CHOOSE(qdq_fp4)
  HADAL_CHOOSE(hadamard)
  HADAL_CHOOSE(rope_angles)
  HADAL_CHOOSE(rope)
  HADAL_CHOOSE(embed)
  HADAL_CHOOSE(ring_write)
  HADAL_CHOOSE(page_write)
  HADAL_CHOOSE(gather_rows)
  HADAL_CHOOSE(route)
  HADAL_CHOOSE(moe_sort)
  HADAL_CHOOSE(swiglu)
  HADAL_CHOOSE(moe_combine)
  HADAL_CHOOSE(compress)
  HADAL_CHOOSE(compress_rows)
  HADAL_CHOOSE(index_weights)
  HADAL_CHOOSE(hyper_post)
#undef HADAL_CHOOSE
}

void rms_norm(Context& ctx, const Tensor& x, const Tensor& w, float eps, const Tensor& y) {
  ctx.kernels.rms_norm(ctx, x, w, eps, y);
}

void add_rms_norm(Context& ctx, const Tensor& residual, const Tensor& delta, const Tensor& w,
                  float eps, const Tensor& y) {
  ctx.kernels.add_rms_norm(ctx, residual, delta, w, eps, y);
}

void layer_norm(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& b, float eps,
                const Tensor& y) {
  ctx.kernels.layer_norm(ctx, x, w, b, eps, y);
}

void quantize_fp8(Context& ctx, const Tensor& x, bool pow2, const Activation& out) {
  ctx.kernels.quantize_fp8(ctx, x, pow2, out);
}

void add_rms_norm_fp8(Context& ctx, const Tensor& residual, const Tensor& delta, const Tensor& w,
                      float eps, const Tensor& y, bool pow2, const Activation& out) {
  ctx.kernels.add_rms_norm_fp8(ctx, residual, delta, w, eps, y, pow2, out);
}

void qdq_fp8(Context& ctx, const Tensor& x, int64_t block) { ctx.kernels.qdq_fp8(ctx, x, block); }

void qdq_fp4(Context& ctx, const Tensor& x) { ctx.kernels.qdq_fp4(ctx, x); }

void hadamard(Context& ctx, const Tensor& x) { ctx.kernels.hadamard(ctx, x); }

void rope_angles(Context& ctx, const int32_t* positions, const Tensor& freqs,
                 const Tensor& angles) {
  ctx.kernels.rope_angles(ctx, positions, freqs, angles);
}

void rope(Context& ctx, const Tensor& x, const Tensor& angles, RopePairs pairs, bool inverse,
          const Tensor& y) {
  ctx.kernels.rope(ctx, x, angles, pairs, inverse, y);
}

void embed(Context& ctx, const int32_t* ids, const Tensor& table, const Tensor& out) {
  ctx.kernels.embed(ctx, ids, table, out);
}

void ring_write(Context& ctx, const Batch& batch, const Tensor& step, const Tensor& ring) {
  ctx.kernels.ring_write(ctx, batch, step, ring);
}

void page_write(Context& ctx, const Batch& batch, const Tensor& rows, const PageTable& table,
                const Tensor& pool) {
  ctx.kernels.page_write(ctx, batch, rows, table, pool);
}

void gather_rows(Context& ctx, const Tensor& x, const int32_t* rows, int64_t n, const Tensor& out) {
  ctx.kernels.gather_rows(ctx, x, rows, n, out);
}

void route(Context& ctx, const Tensor& logits, const int32_t* ids, const Router& router,
           const Tensor& chosen, const Tensor& weights) {
  ctx.kernels.route(ctx, logits, ids, router, chosen, weights);
}

void moe_sort(Context& ctx, const Tensor& chosen, int64_t first, int64_t experts, int32_t* offsets,
              int32_t* pair, int32_t* row) {
  ctx.kernels.moe_sort(ctx, chosen, first, experts, offsets, pair, row);
}

void swiglu(Context& ctx, const Tensor& gate, const Tensor& up, float limit, const float* weights,
            const int32_t* pair, const int32_t* used, const Tensor& y) {
  ctx.kernels.swiglu(ctx, gate, up, limit, weights, pair, used, y);
}

void moe_combine(Context& ctx, const Tensor& y, const int32_t* pair, const int32_t* used, int64_t k,
                 const float* weights, const Tensor& shared, int32_t* position, const Tensor& out) {
  ctx.kernels.moe_combine(ctx, y, pair, used, k, weights, shared, position, out);
}

void compress(Context& ctx, const Batch& batch, const Compress& c) {
  ctx.kernels.compress(ctx, batch, c);
}

void compress_rows(Context& ctx, const Batch& batch, const Tensor& u, const Tensor& g,
                   const Tensor& ape, const Tensor& ug) {
  ctx.kernels.compress_rows(ctx, batch, u, g, ape, ug);
}

void index_weights(Context& ctx, const Tensor& raw, float scale, bool round_bf16,
                   const Tensor& out) {
  ctx.kernels.index_weights(ctx, raw, scale, round_bf16, out);
}

void hyper_post(Context& ctx, const Tensor& a, const Tensor& post, const Tensor& comb,
                const Tensor& x) {
  ctx.kernels.hyper_post(ctx, a, post, comb, x);
}

}  // namespace hadal
