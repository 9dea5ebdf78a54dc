// Quantise once, multiply many.
#include "model/operand.h"

#include <algorithm>

#include "kernels/norm.h"

namespace hadal {

namespace {

int64_t blocks_of(int64_t columns) { return (columns + kFp8Block - 1) / kFp8Block; }

}  // namespace

Operand::Operand(Arena& arena, const Numerics& numerics, bool pow2_scales,
                 std::initializer_list<Shape> shapes)
    : quantize_(numerics.quantize_activations), pow2_(pow2_scales) {
  if (!quantize_) return;
  int64_t codes = 0, scales = 0;
  for (const Shape& s : shapes) {
    codes = std::max(codes, s.rows * s.columns);
    scales = std::max(scales, s.rows * blocks_of(s.columns));
  }
  codes_ = arena.make(DType::kF8E4M3, {codes});
  scales_ = arena.make(DType::kF32, {scales});
}

Activation Operand::room_for(const Tensor& x) const {
  int64_t m = x.shape[0], k = x.shape[1], blocks = blocks_of(k);
  HADAL_CHECK(m * k <= codes_.size() && m * blocks <= scales_.size(),
              "[operand] " + x.describe() + " is larger than planned");
  return {Tensor(codes_.data, DType::kF8E4M3, {m, k}),
          Tensor(scales_.data, DType::kF32, {m, blocks})};
}

Activation Operand::of(Context& ctx, const Tensor& x, const Weight& w) const {
  if (!quantizes(w)) return {x, {}};
  Activation q = room_for(x);
  quantize_fp8(ctx, x, pow2_, q);
  return q;
}

Activation Operand::normed(Context& ctx, const Tensor& residual, const Tensor& delta,
                           const Tensor& norm, float eps, const Tensor& y, const Weight& w) const {
  if (!quantizes(w)) {
    add_rms_norm(ctx, residual, delta, norm, eps, y);
    return {y, {}};
  }
  Activation q = room_for(y);
  add_rms_norm_fp8(ctx, residual, delta, norm, eps, y, pow2_, q);
  return q;
}

}  // namespace hadal
