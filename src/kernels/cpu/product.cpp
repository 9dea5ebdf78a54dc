// The three ops cut into segments.
#include "kernels/cpu/product.h"

namespace hadal {

Segment Product::segment(int64_t s) const {
  Segment out{&weights[s], 0, 0, 1, nullptr, static_cast<char*>(y.data), 0};
  int64_t element = dtype_size(y.dtype);
  out.y_stride = y.stride[0] * element;
  if (offsets) {
    out.count = offsets[s + 1] - offsets[s];
    out.x0 = offsets[s];
    out.rows = rows;
    out.y += out.x0 * out.y_stride;
  } else {
    out.count = x_rows / groups;
    out.x0 = s;
    out.x_step = groups;
    if (y.rank == 3) out.y += s * y.stride[1] * element;
  }
  return out;
}

const void* Product::x_data(int64_t r) const {
  const Tensor& t = x.data;
  int64_t at = t.rank == 3 ? r / groups * t.stride[0] + r % groups * t.stride[1] : r * t.stride[0];
  return static_cast<const char*>(t.data) + at * dtype_size(t.dtype);
}

const float* Product::x_scale(int64_t r) const {
  return x.data.dtype == DType::kF8E4M3 ? x.scale.at<const float>(r) : nullptr;
}

Product product_of(const Activation& x, const Weight& w, const Tensor& y) {
  return {{&w, 1}, w.n(), w.k(), w.data.dtype, x, x.data.shape[0], 1, y, nullptr, nullptr};
}

Product product_of(const Activation& x, const int32_t* rows, const int32_t* offsets,
                   std::span<const Weight> experts, const Tensor& y) {
  size_t first = 0;
  while (first + 1 < experts.size() && offsets[first] == offsets[first + 1]) ++first;
  return {experts, y.shape[1], x.data.shape[1], experts[first].data.dtype, x, x.data.shape[0], 1,
          y,       rows,       offsets};
}

Product product_of(const Tensor& x, std::span<const Weight> w, const Tensor& y) {
  int64_t groups = x.shape[1];
  return {w,      w[0].n(), w[0].k(), w[0].data.dtype, {x, {}}, x.shape[0] * groups,
          groups, y,        nullptr,  nullptr};
}

}  // namespace hadal
