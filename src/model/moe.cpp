// Routed and shared experts.
#include "model/moe.h"

#include <algorithm>

#include "kernels/linear.h"
#include "kernels/moe_combine.h"

namespace hadal {

MoeScratch::MoeScratch(Arena& arena, const Config& c, const Numerics& numerics, int64_t t) {
  int64_t k = std::max<int64_t>(c.experts_per_token, 1), e = std::max<int64_t>(c.experts, 1);
  int64_t all = std::max<int64_t>(c.router_experts, 1);
  int64_t inter = std::max(c.moe_inter, int64_t{1});
  int64_t mlp_inter = std::max(c.dense_inter, c.shared_inter);
  DType a = numerics.activation;
  logits = arena.make(DType::kF32, {t, all});
  chosen = arena.make(DType::kI32, {t, k});
  weights = arena.make(DType::kF32, {t, k});
  offsets = arena.make(DType::kI32, {e + 1});
  pair = arena.make(DType::kI32, {t * k});
  row = arena.make(DType::kI32, {t * k});
  position = arena.make(DType::kI32, {t * k});
  gate = arena.make(a, {t * k, inter});
  up = arena.make(a, {t * k, inter});
  down = arena.make(a, {t * k, c.hidden});
  mlp_gate = arena.make(a, {t, mlp_inter});
  mlp_up = arena.make(a, {t, mlp_inter});
  shared = arena.make(a, {t, c.hidden});
  input = Operand(arena, numerics, c.pow2_scales, {{t, c.hidden}});
  hidden = Operand(arena, numerics, c.pow2_scales, {{t * k, inter}});
  shared_input = Operand(arena, numerics, c.pow2_scales, {{t, c.hidden}});
  mlp_hidden = Operand(arena, numerics, c.pow2_scales, {{t, mlp_inter}});
}

Moe::Moe(const Config& c, const Numerics&)
    : first_expert_(c.first_expert),
      limit_(static_cast<float>(c.swiglu_limit)),
      weight_before_down_(c.family == Family::kV4) {
  router_.score =
      c.score == Config::Score::kSigmoid ? RouterScore::kSigmoid : RouterScore::kSqrtSoftplus;
  router_.groups = static_cast<int>(c.router_groups);
  router_.kept_groups = static_cast<int>(c.kept_groups);
  router_.k = static_cast<int>(c.experts_per_token);
  router_.scale = static_cast<float>(c.route_scale);
  router_.normalize = c.normalize_weights;
}

void Moe::mlp(Context& ctx, const ExpertWeights& w, const Activation& in, const Tensor& y,
              const MoeScratch& s) const {
  int64_t t = in.data.shape[0], inter = w.gate.n();
  Tensor gate(s.mlp_gate.data, s.mlp_gate.dtype, {t, inter});
  Tensor up(s.mlp_up.data, s.mlp_up.dtype, {t, inter});
  linear_pair(ctx, in, w.gate, w.up, gate, up);
  swiglu(ctx, gate, up, limit_, nullptr, nullptr, nullptr, gate);
  linear(ctx, s.mlp_hidden.of(ctx, gate, w.down), w.down, y);
}

void Moe::operator()(Context& ctx, const MoeWeights& w, const int32_t* ids, const Tensor& x,
                     const Activation& in, const Tensor& y, const MoeScratch& s) const {
  int64_t t = x.shape[0], k = router_.k, experts = static_cast<int64_t>(w.gate.size());
  Tensor logits = s.logits.slice(0, 0, t);
  Tensor chosen = s.chosen.slice(0, 0, t), weights = s.weights.slice(0, 0, t);
  auto* offsets = s.offsets.at<int32_t>();
  auto* pair = s.pair.at<int32_t>();
  auto* row = s.row.at<int32_t>();

  Router router = router_;
  router.bias = w.bias;
  router.table = w.table;
  // Beside the routed experts, the shared one.
  Context side = fork(ctx);
  Tensor shared;
  if (!w.shared.gate.empty()) {
    shared = s.shared.slice(0, 0, t);
    bool same = s.input.quantizes(w.shared.gate) == s.input.quantizes(w.gate[0]);
    mlp(side, w.shared, same ? in : s.shared_input.of(side, x, w.shared.gate), shared, s);
  }

  linear(ctx, {x, {}}, w.router, logits);
  route(ctx, logits, ids, router, chosen, weights);
  moe_sort(ctx, chosen, first_expert_, experts, offsets, pair, row);

  // How many pairs there are stands in offsets[experts], which only the device knows: buffers are
  // for all of them, and ops leave the rest alone.
  int64_t m = t * k;
  const int32_t* used = offsets + experts;
  Tensor gate = s.gate.slice(0, 0, m), up = s.up.slice(0, 0, m), down = s.down.slice(0, 0, m);
  const auto* route_weights = weights.at<const float>();
  grouped_linear(ctx, in, row, offsets, w.gate, gate);
  grouped_linear(ctx, in, row, offsets, w.up, up);
  swiglu(ctx, gate, up, limit_, weight_before_down_ ? route_weights : nullptr, pair, used, gate);
  grouped_linear(ctx, s.hidden.of(ctx, gate, w.down[0]), nullptr, offsets, w.down, down);

  join(ctx);
  moe_combine(ctx, down, pair, used, k, weight_before_down_ ? nullptr : route_weights, shared,
              s.position.at<int32_t>(), y);
}

}  // namespace hadal
