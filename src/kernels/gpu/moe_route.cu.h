// The router: one block per token, scores in shared memory, choices by repeated maxima, the lower
// index first among equals. A portable GPU kernel (kl.h); contract in kernels/moe_route.h.
#pragma once

#include "kernels/cpu/element.h"
#include "kernels/gpu/kl.h"
#include "kernels/gpu/launchers.h"

namespace hadal::KL_TARGET {

inline constexpr int kRouteThreads = 128;
inline constexpr int kRouteExperts = 1024;  // at most
inline constexpr int kRouteGroups = 64;
inline constexpr int kRouteChoices = 64;

template <class T>
struct RouteArgs {
  View<T> logits;
  const int32_t* ids;
  const float* bias;
  View<int64_t> table;
  View<int32_t> chosen;
  View<float> weights;
  int64_t rows;
  int experts, groups, kept_groups, k;
  float scale;
  bool sigmoid, normalize;
};

struct RouteState {
  float score[kRouteExperts];   // without the bias
  float biased[kRouteExperts];  // what selects
  float group[kRouteGroups];
  int32_t chosen[kRouteChoices];
};

KL_DEVICE float route_score(float logit, bool sigmoid) {
  if (sigmoid) return kl::sigmoid(logit);
  // log1p keeps the small side exact; the branch keeps e^x from overflowing on the large side.
  float soft = logit > 0 ? logit + log1pf(expf(-logit)) : log1pf(expf(logit));
  return sqrtf(soft);
}

// -inf for the experts of all groups but the best; a group counts for the sum of its two best.
template <class T>
KL_DEVICE void route_groups(const RouteArgs<T>& a, RouteState& s) {
  int size = a.experts / a.groups;
  for (int g = kl::thread(); g < a.groups; g += kl::threads()) {
    float first = -kl::infinity(), second = -kl::infinity();
    for (int e = g * size; e < (g + 1) * size; ++e) {
      float v = s.biased[e];
      second = v > first ? first : v > second ? v : second;
      first = v > first ? v : first;
    }
    s.group[g] = size > 1 ? first + second : first;
  }
  kl::sync();
  for (int e = kl::thread(); e < a.experts; e += kl::threads()) {
    int mine = e / size, better = 0;
    for (int g = 0; g < a.groups; ++g)
      better += s.group[g] > s.group[mine] || (s.group[g] == s.group[mine] && g < mine);
    if (better >= a.kept_groups) s.biased[e] = -kl::infinity();
  }
  kl::sync();
}

template <class T>
KL_DEVICE void route_choose(const RouteArgs<T>& a, RouteState& s) {
  for (int e = kl::thread(); e < a.experts; e += kl::threads())
    s.biased[e] = s.score[e] + (a.bias ? a.bias[e] : 0.0f);
  kl::sync();
  if (a.kept_groups < a.groups) route_groups(a, s);
  for (int k = 0; k < a.k; ++k) {
    kl::Best best = {-kl::infinity(), a.experts};
    for (int e = kl::thread(); e < a.experts; e += kl::threads())
      best = kl::better(best, {s.biased[e], e});
    best = kl::block_best(best);
    if (kl::thread() == 0) {
      s.chosen[k] = best.index;
      s.biased[best.index] = -kl::infinity();
    }
    kl::sync();
  }
}

// limits: vgprs 64, lds 9216
template <class T>
KL_KERNEL(kRouteThreads)
route_kernel(RouteArgs<T> a) {
  KL_SHARED(RouteState, s, );
  for (int64_t t = kl::block(); t < a.rows; t += kl::blocks()) {
    float bad = 0;
    for (int e = kl::thread(); e < a.experts; e += kl::threads()) {
      float v = route_score(load(*a.logits.at(t, e)), a.sigmoid);
      s.score[e] = v;
      if (!(v <= 3.4e38f)) bad = 1;  // NaN or infinite
    }
    for (int k = kl::thread(); a.table && k < a.k; k += kl::threads()) {
      int64_t id = *a.table.at(a.ids[t], k);
      if (id < 0 || id >= a.experts) bad = 1;
      s.chosen[k] = static_cast<int32_t>(id);
    }
    bool finite = kl::block_max(bad) == 0;  // the same in all threads; a barrier for the scores
    if (finite && !a.table) route_choose(a, s);
    float sum = 0;
    for (int k = 0; finite && k < a.k; ++k) sum += s.score[s.chosen[k]];
    for (int k = kl::thread(); k < a.k; k += kl::threads()) {
      float v = finite ? s.score[s.chosen[k]] : kl::quiet_nan();
      *a.chosen.at(t, k) = finite ? s.chosen[k] : -1;
      *a.weights.at(t, k) = (a.normalize ? v / (sum + 1e-20f) : v) * a.scale;
    }
    kl::sync();  // the next token overwrites the scores
  }
}

void route(GpuStream s, const Tensor& logits, const int32_t* ids, const Router& r,
           const Tensor& chosen, const Tensor& weights) {
  int64_t rows = logits.shape[0], experts = logits.shape[1];
  expect_adjacent("route", "logits", logits);
  expect_shape("route", "chosen", chosen, {rows, r.k});
  expect_shape("route", "weights", weights, {rows, r.k});
  expect_dtype("route", "chosen", chosen, DType::kI32);
  expect_dtype("route", "weights", weights, DType::kF32);
  if (!r.bias.empty()) {
    expect_shape("route", "bias", r.bias, {experts});
    expect_dtype("route", "bias", r.bias, DType::kF32);
  }
  if (!r.table.empty()) expect_shape("route", "table", r.table, {r.table.shape[0], r.k});
  HADAL_CHECK(experts <= kRouteExperts && r.groups >= 1 && r.groups <= kRouteGroups &&
                  r.k <= kRouteChoices && experts % r.groups == 0 && r.kept_groups >= 1 &&
                  r.k <= experts / r.groups * std::min(r.kept_groups, r.groups),
              "[route] cannot choose " + std::to_string(r.k) + " of " + std::to_string(experts) +
                  " experts in " + std::to_string(r.groups) + " groups");
  with_activation("route", logits.dtype, [&](auto type) {
    using T = decltype(type);
    kl::launch(route_kernel<T>, {kl::grid(s, rows)}, kRouteThreads, 0, s,
               RouteArgs<T>{view<T>(logits), ids, static_cast<const float*>(r.bias.data),
                            view<int64_t>(r.table), view<int32_t>(chosen), view<float>(weights),
                            rows, static_cast<int>(experts), r.groups, r.kept_groups, r.k, r.scale,
                            r.score == RouterScore::kSigmoid, r.normalize});
  });
}

}  // namespace hadal::KL_TARGET
