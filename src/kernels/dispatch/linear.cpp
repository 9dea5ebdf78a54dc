// Which matrix-product kernel runs: the candidates in order of preference, and where "few rows"
// (decode, bound by reading W) ends and "many rows" (prefill, bound by arithmetic) begins.
#include "kernels/linear.h"

#include "kernels/cpu/ref_linear.h"
#include "kernels/cpu/tuned_linear.h"
#include "kernels/cuda/tuned.h"
#include "kernels/dispatch/candidates.h"

namespace hadal {
namespace {

constexpr int64_t kPortableFewRows = 8;  // what the portable few-row products are made for

// The tensor core products take release numerics; what they do not take goes on to the next.
void mma_linear(Context& ctx, const Activation& x, const Weight& w, const Tensor& y) {
  bool few = x.data.shape[0] <= kPortableFewRows;
  auto* launch = mma_linear_supports(x, w).empty() ? ctx.tuned->linear
                 : few                             ? ctx.portable->linear_few
                                                   : ctx.portable->linear;
  launch(ctx.stream, x, w, y);
}

void mma_grouped_linear(Context& ctx, const Activation& x, const int32_t* rows,
                        const int32_t* offsets, std::span<const Weight> experts, const Tensor& y) {
  bool takes = mma_linear_supports(x, experts[0]).empty();
  auto* launch = takes ? ctx.tuned->grouped_linear : ctx.portable->grouped_linear;
  launch(ctx.stream, x, rows, offsets, experts, y);
}

void mma_batched_linear(Context& ctx, const Tensor& x, std::span<const Weight> w, const Tensor& y) {
  Tensor group(x.at<const char>(), x.dtype, {x.shape[0], x.shape[2]});
  group.stride[0] = x.stride[0];
  bool takes =
      mma_linear_supports({group, {}}, w[0]).empty() && x.stride[1] * dtype_size(x.dtype) % 16 == 0;
  bool few = x.shape[0] <= kPortableFewRows;
  auto* launch = takes ? ctx.tuned->batched_linear
                 : few ? ctx.portable->batched_linear_few
                       : ctx.portable->batched_linear;
  launch(ctx.stream, x, w, y);
}

void mma_batched_linear_transposed(Context& ctx, const Tensor& x, std::span<const Weight> w,
                                   const Tensor& y) {
  bool takes = mma_transposed_supports(x, w[0]).empty();
  auto* launch =
      takes ? ctx.tuned->batched_linear_transposed : ctx.portable->batched_linear_transposed;
  launch(ctx.stream, x, w, y);
}

constexpr Candidate<LinearFn> kLinearFew[] = {
    {"avx512_linear", needs_avx512, avx512_linear},
    {"avx2_linear", needs_avx2, avx2_linear},
    {"portable_linear_few", needs_gpu, OnStream<&PortableKernels::linear_few>::launch},
    {"mma_linear", needs_tensor_cores, mma_linear},
    {"portable_linear", needs_gpu, OnStream<&PortableKernels::linear>::launch},
    {"ref_linear", needs_cpu, ref_linear}};
constexpr Candidate<LinearFn> kLinearMany[] = {
    {"amx_linear", needs_amx, amx_linear},
    {"avx512_linear", needs_avx512, avx512_linear},
    {"avx2_linear", needs_avx2, avx2_linear},
    {"mma_linear", needs_tensor_cores, mma_linear},
    {"portable_linear", needs_gpu, OnStream<&PortableKernels::linear>::launch},
    {"ref_linear", needs_cpu, ref_linear}};
constexpr Candidate<GroupedLinearFn> kGroupedFew[] = {
    {"avx512_grouped_linear", needs_avx512, avx512_grouped_linear},
    {"avx2_grouped_linear", needs_avx2, avx2_grouped_linear},
    {"portable_grouped_linear_few", needs_gpu,
     OnStream<&PortableKernels::grouped_linear_few>::launch},
    {"mma_grouped_linear", needs_tensor_cores, mma_grouped_linear},
    {"portable_grouped_linear", needs_gpu, OnStream<&PortableKernels::grouped_linear>::launch},
    {"ref_grouped_linear", needs_cpu, ref_grouped_linear}};
constexpr Candidate<GroupedLinearFn> kGroupedMany[] = {
    {"amx_grouped_linear", needs_amx, amx_grouped_linear},
    {"avx512_grouped_linear", needs_avx512, avx512_grouped_linear},
    {"avx2_grouped_linear", needs_avx2, avx2_grouped_linear},
    {"mma_grouped_linear", needs_tensor_cores, mma_grouped_linear},
    {"portable_grouped_linear", needs_gpu, OnStream<&PortableKernels::grouped_linear>::launch},
    {"ref_grouped_linear", needs_cpu, ref_grouped_linear}};
constexpr Candidate<BatchedLinearFn> kBatchedFew[] = {
    {"amx_batched_linear", needs_amx, amx_batched_linear},
    {"avx512_batched_linear", needs_avx512, avx512_batched_linear},
    {"avx2_batched_linear", needs_avx2, avx2_batched_linear},
    {"portable_batched_linear_few", needs_gpu,
     OnStream<&PortableKernels::batched_linear_few>::launch},
    {"mma_batched_linear", needs_tensor_cores, mma_batched_linear},
    {"portable_batched_linear", needs_gpu, OnStream<&PortableKernels::batched_linear>::launch},
    {"ref_batched_linear", needs_cpu, ref_batched_linear}};
constexpr Candidate<BatchedLinearFn> kBatchedMany[] = {
    {"amx_batched_linear", needs_amx, amx_batched_linear},
    {"avx512_batched_linear", needs_avx512, avx512_batched_linear},
    {"avx2_batched_linear", needs_avx2, avx2_batched_linear},
    {"mma_batched_linear", needs_tensor_cores, mma_batched_linear},
    {"portable_batched_linear", needs_gpu, OnStream<&PortableKernels::batched_linear>::launch},
    {"ref_batched_linear", needs_cpu, ref_batched_linear}};
constexpr Candidate<BatchedLinearFn> kTransposedFew[] = {
    {"amx_batched_linear_transposed", needs_amx, amx_batched_linear_transposed},
    {"avx512_batched_linear_transposed", needs_avx512, avx512_batched_linear_transposed},
    {"avx2_batched_linear_transposed", needs_avx2, avx2_batched_linear_transposed},
    {"portable_batched_linear_transposed_few", needs_gpu,
     OnStream<&PortableKernels::batched_linear_transposed_few>::launch},
    {"mma_batched_linear_transposed", needs_tensor_cores, mma_batched_linear_transposed},
    {"portable_batched_linear_transposed", needs_gpu,
     OnStream<&PortableKernels::batched_linear_transposed>::launch},
    {"ref_batched_linear_transposed", needs_cpu, ref_batched_linear_transposed}};
constexpr Candidate<BatchedLinearFn> kTransposedMany[] = {
    {"amx_batched_linear_transposed", needs_amx, amx_batched_linear_transposed},
    {"avx512_batched_linear_transposed", needs_avx512, avx512_batched_linear_transposed},
    {"avx2_batched_linear_transposed", needs_avx2, avx2_batched_linear_transposed},
    {"mma_batched_linear_transposed", needs_tensor_cores, mma_batched_linear_transposed},
    {"portable_batched_linear_transposed", needs_gpu,
     OnStream<&PortableKernels::batched_linear_transposed>::launch},
    {"ref_batched_linear_transposed", needs_cpu, ref_batched_linear_transposed}};

constexpr int64_t kFewRowsOnGpu = 1;  // from two rows on tensor cores win

int64_t few_rows(const Context& ctx) { return ctx.portable ? kFewRowsOnGpu : kFewRows; }

// Where no kernel takes both at once.
void linear_each(Context& ctx, const Activation& x, const Weight& w0, const Weight& w1,
                 const Tensor& y0, const Tensor& y1) {
  linear(ctx, x, w0, y0);
  linear(ctx, x, w1, y1);
}

void mma_linear_pair(Context& ctx, const Activation& x, const Weight& w0, const Weight& w1,
                     const Tensor& y0, const Tensor& y1) {
  bool takes = mma_linear_supports(x, w0).empty() && mma_linear_supports(x, w1).empty();
  if (!takes) return linear_each(ctx, x, w0, w1, y0, y1);
  ctx.tuned->linear_pair(ctx.stream, x, w0, w1, y0, y1);
}

using LinearPairFn = decltype(hadal::linear_pair);
constexpr Candidate<LinearPairFn> kPairFew[] = {
    {"portable_linear_pair_few", needs_gpu, OnStream<&PortableKernels::linear_pair_few>::launch},
    {"linear_each", any_device, linear_each}};
constexpr Candidate<LinearPairFn> kPairMany[] = {
    {"mma_linear_pair", needs_tensor_cores, mma_linear_pair},
    {"linear_each", any_device, linear_each}};

bool float_like(DType t) { return t == DType::kF32 || t == DType::kBF16; }

std::string pair(const Tensor& a, const Tensor& b) { return a.describe() + " and " + b.describe(); }

void check_weight(const Weight& w, int64_t k, const Tensor& x) {
  HADAL_CHECK(w.k() == k, "[linear] columns of W and x differ: " + pair(w.data, x));
  HADAL_CHECK(w.data.stride[1] == 1, "[linear] columns of W must be adjacent");
  if (w.fp4())
    HADAL_CHECK(k % kFp4Block == 0 && w.scale.shape[1] == k / kFp4Block,
                "[linear] FP4 W without matching scale: " + pair(w.data, w.scale));
  if (w.fp8()) {
    int64_t last = (w.row0 + w.n() - 1) / kFp8Block;
    HADAL_CHECK(w.scale.shape[1] == (k + kFp8Block - 1) / kFp8Block && last < w.scale.shape[0],
                "[linear] FP8 W without matching scale: " + pair(w.data, w.scale));
  }
}

void check_activation(const Activation& x, int64_t k) {
  if (x.data.dtype == DType::kF8E4M3)
    HADAL_CHECK(x.scale.dtype == DType::kF32 && x.scale.shape[0] >= x.data.shape[0] &&
                    x.scale.shape[1] == (k + kFp8Block - 1) / kFp8Block,
                "[linear] FP8 x without matching scale: " + pair(x.data, x.scale));
  else
    HADAL_CHECK(float_like(x.data.dtype), "[linear] x is " + x.data.describe());
  HADAL_CHECK(x.data.stride[1] == 1, "[linear] columns of x must be adjacent");
}

void check_output(const Tensor& y, int64_t m, int64_t n, const Weight& w) {
  HADAL_CHECK(y.shape[0] == m && y.shape[1] == n && float_like(y.dtype) && y.stride[1] == 1,
              "[linear] y does not fit W: " + pair(y, w.data));
}

void check_batched(const Tensor& x, std::span<const Weight> w, const Tensor& y, bool transposed) {
  HADAL_CHECK(x.rank == 3 && y.rank == 3 && x.shape[0] == y.shape[0] && x.shape[1] == y.shape[1] &&
                  x.shape[1] == static_cast<int64_t>(w.size()),
              "[batched_linear] groups differ: " + pair(x, y));
  HADAL_CHECK(float_like(x.dtype) && float_like(y.dtype) && x.stride[2] == 1 && y.stride[2] == 1,
              "[batched_linear] x and y must be f32 or bf16, columns adjacent: " + pair(x, y));
  for (const Weight& one : w) {
    int64_t in = transposed ? one.n() : one.k(), out = transposed ? one.k() : one.n();
    HADAL_CHECK(x.shape[2] == in && y.shape[2] == out,
                "[batched_linear] W " + one.data.describe() + " does not fit " + pair(x, y));
    check_weight(one, one.k(), x);
  }
}

}  // namespace

void choose_linear(const Device& device, std::span<const std::string> without, Kernels& k) {
  k.linear.few = choose<LinearFn>("linear_few", kLinearFew, device, without, k);
  k.linear.many = choose<LinearFn>("linear_many", kLinearMany, device, without, k);
  k.linear_pair = {choose<LinearPairFn>("linear_pair_few", kPairFew, device, without, k),
                   choose<LinearPairFn>("linear_pair_many", kPairMany, device, without, k)};
  k.grouped_linear.few =
      choose<GroupedLinearFn>("grouped_linear_few", kGroupedFew, device, without, k);
  k.grouped_linear.many =
      choose<GroupedLinearFn>("grouped_linear_many", kGroupedMany, device, without, k);
  auto pick = [&](const char* op, auto& candidates) {
    return choose<BatchedLinearFn>(op, candidates, device, without, k);
  };
  k.batched_linear = {pick("batched_linear_few", kBatchedFew),
                      pick("batched_linear_many", kBatchedMany)};
  k.batched_linear_transposed = {pick("batched_linear_transposed_few", kTransposedFew),
                                 pick("batched_linear_transposed_many", kTransposedMany)};
}

void linear(Context& ctx, const Activation& x, const Weight& w, const Tensor& y) {
  int64_t m = x.data.shape[0];
  check_activation(x, x.data.shape[1]);
  check_output(y, m, w.n(), w);
  if (m == 0 || w.n() == 0) return;
  check_weight(w, x.data.shape[1], x.data);
  const auto& by = ctx.kernels.linear;
  (m <= few_rows(ctx) ? by.few : by.many)(ctx, x, w, y);
}

void linear_pair(Context& ctx, const Activation& x, const Weight& w0, const Weight& w1,
                 const Tensor& y0, const Tensor& y1) {
  const auto& by = ctx.kernels.linear_pair;
  (x.data.shape[0] <= few_rows(ctx) ? by.few : by.many)(ctx, x, w0, w1, y0, y1);
}

void grouped_linear(Context& ctx, const Activation& x, const int32_t* rows, const int32_t* offsets,
                    std::span<const Weight> experts, const Tensor& y) {
  // On a GPU only the device knows the offsets: as many rows as there can be, spread evenly.
  bool on_host = ctx.portable == nullptr;
  auto count = static_cast<int64_t>(experts.size());
  int64_t m = on_host ? offsets[count] : y.shape[0], active = on_host ? 0 : std::min(m, count);
  if (m == 0) return;
  check_activation(x, x.data.shape[1]);
  Tensor out = y.slice(0, 0, m);
  for (int64_t e = 0; e < (on_host ? count : 1); ++e) {
    if (on_host && offsets[e] == offsets[e + 1]) continue;
    active += on_host;
    check_weight(experts[e], x.data.shape[1], x.data);
    check_output(out, m, experts[e].n(), experts[e]);
  }
  const auto& by = ctx.kernels.grouped_linear;
  (m <= few_rows(ctx) * active ? by.few : by.many)(ctx, x, rows, offsets, experts, out);
}

void batched_linear(Context& ctx, const Tensor& x, std::span<const Weight> w, const Tensor& y) {
  if (x.shape[0] == 0) return;
  check_batched(x, w, y, false);
  const auto& by = ctx.kernels.batched_linear;
  (x.shape[0] <= few_rows(ctx) ? by.few : by.many)(ctx, x, w, y);
}

void batched_linear_transposed(Context& ctx, const Tensor& x, std::span<const Weight> w,
                               const Tensor& y) {
  if (x.shape[0] == 0) return;
  check_batched(x, w, y, true);
  const auto& by = ctx.kernels.batched_linear_transposed;
  (x.shape[0] <= few_rows(ctx) ? by.few : by.many)(ctx, x, w, y);
}

}  // namespace hadal
