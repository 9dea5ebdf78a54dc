// Quantise once, multiply many.
#include "model/operand.h"

#include <algorithm>

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

Activation Operand::of(Context& ctx, const Tensor& x, const Weight& w) const {
  if (!quantize_ || !(w.fp8() || w.fp4())) return {x, {}};
  int64_t m = x.shape[0], k = x.shape[1], blocks = blocks_of(k);
  HADAL_CHECK(m * k <= codes_.size() && m * blocks <= scales_.size(),
              "[operand] " + x.describe() + " is larger than planned");
  Activation q{Tensor(codes_.data, DType::kF8E4M3, {m, k}),
               Tensor(scales_.data, DType::kF32, {m, blocks})};
  quantize_fp8(ctx, x, pow2_, q);
  return q;
}

}  // namespace hadal
