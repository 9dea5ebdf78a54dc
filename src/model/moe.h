// Mixture of experts: route, multiply by the chosen experts, add the shared one. Also the plain
// gated MLP of dense layers. Source: spec V4 section 5, spec V3.2 sections 3.2 and 5.
#pragma once

#include "kernels/moe_route.h"
#include "model/operand.h"
#include "model/weights.h"

namespace hadal {

// Buffers of one MoE block; every layer reuses them. T = max_rows, K experts per token.
struct MoeScratch {
  Tensor logits;                        // [T, E of the router] f32
  Tensor chosen, weights;               // [T, K] i32, f32
  Tensor offsets, pair, row, position;  // [E + 1], [T*K] x 3, i32
  Tensor gate, up;                      // [T*K, I]
  Tensor down;                          // [T*K, C]
  Tensor mlp_gate, mlp_up;              // [T, inter] of the shared expert or dense MLP
  Tensor shared;                        // [T, C]
  Operand input, hidden;                // of the routed experts, and of a dense MLP
  Operand shared_input, mlp_hidden;     // of the shared expert, which may run beside them

  MoeScratch(Arena& arena, const Config& config, const Numerics& numerics, int64_t max_rows);
};

class Moe {
 public:
  // V4 puts the routing weight before the down projection, V3.x after it.
  Moe(const Config& config, const Numerics& numerics);

  // y [T, C] = sum of chosen experts + shared expert of x [T, C]. `in`: x as the operand of the
  // experts' weights.
  void operator()(Context& ctx, const MoeWeights& w, const int32_t* ids, const Tensor& x,
                  const Activation& in, const Tensor& y, const MoeScratch& s) const;

  // y [T, C] = down(silu(gate x) * up x), with the family's clamp. `in`: x [T, C] as the operand of
  // gate and up.
  void mlp(Context& ctx, const ExpertWeights& w, const Activation& in, const Tensor& y,
           const MoeScratch& s) const;

 private:
  Router router_;
  int64_t first_expert_ = 0;
  float limit_ = 0;
  bool weight_before_down_ = false;
};

}  // namespace hadal
