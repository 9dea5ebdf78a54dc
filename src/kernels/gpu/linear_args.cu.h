// What every matrix product's kernel takes: operands of any format, weights of a list at equal
// distances. Part of the GPU kernels (kl.h); contract in kernels/linear.h.
#pragma once

#include <array>
#include <span>

#include "kernels/cpu/element.h"
#include "kernels/gpu/kl.h"
#include "kernels/linear.h"

namespace hadal::KL_TARGET {

// A matrix of any format; group g begins g * group bytes later.
struct LinearOperand {
  const char* data;
  int64_t stride, group;  // elements, bytes
  DType dtype;
};

struct LinearArgs {
  LinearOperand x, w;
  View<float> x_scale;  // null: x holds values, not codes
  const char* w_scale;
  int64_t w_scale_stride, w_scale_group, row0, row0_group;  // elements, bytes, rows, rows
  DType w_scale_dtype;
  char* y;
  int64_t y_stride, y_group;  // elements
  DType y_dtype;
  int64_t m, n, k, groups;        // n outputs, k summed
  const int32_t *rows, *offsets;  // experts: where x rows come from, and each expert's rows of y
  bool transposed;                // w is [k, n]
};

inline constexpr int64_t kMostExperts = 1024;  // that a kernel can list

KL_DEVICE void store_result(const LinearArgs& a, int64_t group, int64_t m, int64_t n, float v) {
  int64_t at = m * a.y_stride + group * a.y_group + n;
  if (a.y_dtype == DType::kF32)
    reinterpret_cast<float*>(a.y)[at] = v;
  else
    store(reinterpret_cast<BF16*>(a.y)[at], v);
}

// Lists the experts that have rows, in shared memory; how many there are. Ends with a barrier.
KL_DEVICE int experts_with_rows(const LinearArgs& a, int32_t* list) {
  int count = 0;
  for (int64_t first = 0; first < a.groups; first += kl::threads()) {
    int64_t e = first + kl::thread();
    bool has_rows = e < a.groups && a.offsets[e] < a.offsets[e + 1];
    kl::Rank rank = kl::block_rank(has_rows);
    if (has_rows) list[count + rank.before] = static_cast<int32_t>(e);
    count += rank.total;
  }
  kl::sync();
  return count;
}

inline LinearArgs linear_args(const Tensor& x, std::span<const Weight> w, const Tensor& y) {
  LinearArgs a = {};
  const Weight& first = w[0];
  a.groups = static_cast<int64_t>(w.size());
  a.x = {static_cast<const char*>(x.data), x.stride[0], 0, x.dtype};
  a.w = {static_cast<const char*>(first.data.data), first.data.stride[0], 0, first.data.dtype};
  a.w_scale = static_cast<const char*>(first.scale.data);
  a.w_scale_stride = first.scale.stride[0];
  a.w_scale_dtype = first.scale.dtype;
  a.row0 = first.row0;
  a.y = static_cast<char*>(y.data);
  a.y_stride = y.stride[0];
  a.y_dtype = y.dtype;
  a.m = x.shape[0];
  a.n = first.n();
  a.k = first.k();
  auto apart = [](const Tensor& p, const Tensor& q) {
    return static_cast<const char*>(q.data) - static_cast<const char*>(p.data);
  };
  for (size_t g = 1; g < w.size(); ++g) {
    if (g == 1) {
      a.w.group = apart(w[0].data, w[1].data);
      a.w_scale_group = apart(w[0].scale, w[1].scale);
      a.row0_group = w[1].row0 - w[0].row0;
    }
    HADAL_CHECK(apart(w[g - 1].data, w[g].data) == a.w.group &&
                    apart(w[g - 1].scale, w[g].scale) == a.w_scale_group &&
                    w[g].row0 - w[g - 1].row0 == a.row0_group && w[g].n() == a.n &&
                    w[g].k() == a.k && w[g].data.dtype == a.w.dtype,
                "[linear] the weights of a list must have one shape and lie at equal distances");
  }
  return a;
}

// The products of kernels/linear.h as arguments; shapes and formats are checked.
inline void check_formats(const LinearArgs& a) {
  HADAL_CHECK(a.w.dtype != DType::kI8 || (!a.transposed && a.k % kFp4Block == 0),
              "[linear] FP4 W with " + std::to_string(a.k) + " columns");
  HADAL_CHECK(a.y_dtype == DType::kF32 || a.y_dtype == DType::kBF16,
              std::string("[linear] y of dtype ") + dtype_name(a.y_dtype));
}

inline LinearArgs grouped_problem(const Activation& x, const int32_t* rows, const int32_t* offsets,
                                  std::span<const Weight> experts, const Tensor& y) {
  const char* op = offsets ? "grouped_linear" : "linear";
  expect_shape(op, "x", x.data, {x.data.shape[0], experts[0].k()});
  expect_shape(op, "y", y, {offsets ? y.shape[0] : x.data.shape[0], experts[0].n()});
  expect_adjacent(op, "x", x.data);
  expect_adjacent(op, "y", y);
  LinearArgs a = linear_args(x.data, experts, y);
  if (x.data.dtype == DType::kF8E4M3) a.x_scale = view<float>(x.scale);
  a.rows = rows;
  a.offsets = offsets;
  check_formats(a);
  return a;
}

inline LinearArgs linear_problem(const Activation& x, const Weight& w, const Tensor& y) {
  return grouped_problem(x, nullptr, nullptr, {&w, 1}, y);
}

inline LinearArgs batched_problem(const Tensor& x, std::span<const Weight> w, const Tensor& y,
                                  bool transposed) {
  const char* op = "batched_linear";
  int64_t m = x.shape[0], groups = static_cast<int64_t>(w.size());
  int64_t in = transposed ? w[0].n() : w[0].k(), out = transposed ? w[0].k() : w[0].n();
  expect_shape(op, "x", x, {m, groups, in});
  expect_shape(op, "y", y, {m, groups, out});
  expect_adjacent(op, "x", x);
  expect_adjacent(op, "y", y);
  LinearArgs a = linear_args(x, w, y);
  a.x.group = x.stride[1] * dtype_size(x.dtype);
  a.y_group = y.stride[1];
  a.n = out;
  a.k = in;
  a.transposed = transposed;
  check_formats(a);
  return a;
}

// Two weights of one shape and one x: two groups with the same x.
inline LinearArgs pair_problem(const Activation& x, const std::array<Weight, 2>& w,
                               const Tensor& y0, const Tensor& y1) {
  expect_shape("linear_pair", "y1", y1, {y0.shape[0], y0.shape[1]});
  HADAL_CHECK(y1.dtype == y0.dtype && y1.stride == y0.stride,
              "[linear_pair] y0 and y1 must have one dtype and the same strides");
  LinearArgs a = grouped_problem(x, nullptr, nullptr, w, y0);
  a.y_group = (static_cast<char*>(y1.data) - static_cast<char*>(y0.data)) / dtype_size(y0.dtype);
  return a;
}

}  // namespace hadal::KL_TARGET
