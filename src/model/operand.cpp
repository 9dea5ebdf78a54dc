// Quantise once, multiply many.
#include "model/operand.h"

namespace hadal {

Operand::Operand(Arena& arena, const Numerics& numerics, bool pow2_scales, int64_t max_rows,
                 int64_t max_k)
    : quantize_(numerics.quantize_activations), pow2_(pow2_scales) {
  if (!quantize_) return;
  int64_t blocks = (max_k + kFp8Block - 1) / kFp8Block;
  codes_ = arena.make(DType::kF8E4M3, {max_rows * max_k});
  scales_ = arena.make(DType::kF32, {max_rows * blocks});
}

Activation Operand::of(Context& ctx, const Tensor& x, const Weight& w) const {
  if (!quantize_ || !(w.fp8() || w.fp4())) return {x, {}};
  int64_t m = x.shape[0], k = x.shape[1], blocks = (k + kFp8Block - 1) / kFp8Block;
  HADAL_CHECK(m * k <= codes_.size(), "[operand] " + x.describe() + " is larger than planned");
  Activation q{Tensor(codes_.data, DType::kF8E4M3, {m, k}),
               Tensor(scales_.data, DType::kF32, {m, blocks})};
  quantize_fp8(ctx, x, pow2_, q);
  return q;
}

}  // namespace hadal
