// The left operand of a matrix product, quantised where the numerics and the weight ask for it.
#pragma once

#include "base/buffer.h"
#include "kernels/quant.h"
#include "model/numerics.h"

namespace hadal {

// One FP8 copy of an activation, codes and scales. Valid from one of() to the next on the same
// object; two inputs that live at once need two.
class Operand {
 public:
  struct Shape {
    int64_t rows, columns;
  };

  Operand() = default;
  // Room for one activation of any of the shapes (or fewer rows).
  Operand(Arena& arena, const Numerics& numerics, bool pow2_scales,
          std::initializer_list<Shape> shapes);

  // x [M, K] as the left operand for `w`: FP8 codes for FP8 and FP4 weights under quantised
  // activations, else x itself. The result may be used for every weight of the same kind.
  Activation of(Context& ctx, const Tensor& x, const Weight& w) const;
  // residual += delta (empty: nothing), y = rms_norm of the sum; y as the operand for `w`.
  // Residual, delta, y [M, K]; y may be residual where delta is empty.
  Activation normed(Context& ctx, const Tensor& residual, const Tensor& delta, const Tensor& norm,
                    float eps, const Tensor& y, const Weight& w) const;
  // Whether of() gives FP8 codes for `w`.
  bool quantizes(const Weight& w) const { return quantize_ && (w.fp8() || w.fp4()); }

 private:
  Activation room_for(const Tensor& x) const;

  bool quantize_ = false, pow2_ = false;
  Tensor codes_, scales_;  // flat storage, viewed as [M, K] per use
};

}  // namespace hadal
