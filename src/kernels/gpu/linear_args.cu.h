// What every matrix product's kernel takes: operands of any format, weights of a list at equal
// distances. Part of the GPU kernels (kl.h); contract in kernels/linear.h.
#pragma once

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

}  // namespace hadal::KL_TARGET
