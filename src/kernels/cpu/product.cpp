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

const float* expand_fp8_scales(const Weight& w, int64_t begin, int64_t end, Scratch& scratch) {
  int64_t columns = w.scale.shape[1], first = (w.row0 + begin) / kFp8Block;
  int64_t blocks = (w.row0 + end - 1) / kFp8Block - first + 1;
  auto* out = static_cast<float*>(scratch.grow(blocks * columns * 4));
  for (int64_t i = 0; i < blocks; ++i)
    for (int64_t j = 0; j < columns; ++j)
      out[i * columns + j] = fp8_scale(w, (first + i) * kFp8Block - w.row0, j);
  return out;
}

bool power_of_two_scales(const Weight& w) {
  if (!w.fp8() || w.scale.dtype == DType::kF8E8M0) return true;
  for (int64_t i = w.row0 / kFp8Block; i <= (w.row0 + w.n() - 1) / kFp8Block; ++i)
    for (int64_t j = 0; j < w.scale.shape[1]; ++j)
      if (!is_power_of_two(*w.scale.at<const float>(i, j))) return false;
  return true;
}

Tensor group_of(const Tensor& t, int64_t g) {
  Tensor cut = t.slice(1, g, g + 1);
  cut.rank = 2;
  cut.shape = {t.shape[0], t.shape[2]};
  cut.stride = {t.stride[0], t.stride[2]};
  return cut;
}

}  // namespace hadal
