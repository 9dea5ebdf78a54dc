// The router: scores, selection with the correction bias, weights without it; and the sort of the
// chosen pairs by expert.
#include "kernels/moe_route.h"

#include <limits>

#include "kernels/cpu/element.h"
#include "kernels/cpu/ops.h"

namespace hadal::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct ScoreRow {};
struct BiasedRow {};
struct GroupRow {};
struct BestRow {};

// log1p keeps the small side exact; the branch keeps e^x from overflowing on the large side.
float softplus(float x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }

float score_of(RouterScore kind, float logit) {
  if (kind == RouterScore::kSqrtSoftplus) return std::sqrt(softplus(logit));
  return 1.0f / (1.0f + std::exp(-logit));
}

// The indices of the k largest of v[0, n), best first; equal values: the lower index first.
// `best` holds k values of scratch. Values must not be NaN.
void largest(const float* v, int n, int k, float* best, int32_t* index) {
  int filled = 0;
  for (int i = 0; i < n; ++i) {
    if (filled == k && !(v[i] > best[k - 1])) continue;
    int at = filled < k ? filled++ : k - 1;
    for (; at > 0 && v[i] > best[at - 1]; --at) {
      best[at] = best[at - 1];
      index[at] = index[at - 1];
    }
    best[at] = v[i];
    index[at] = i;
  }
}

// -inf for the experts of all groups but the best.
void keep_groups(const Router& r, int experts, float* biased) {
  int size = experts / r.groups;
  float* sums = scratch<float, GroupRow>(2 * r.groups);
  for (int g = 0; g < r.groups; ++g) {
    float first = -kInf, second = -kInf;
    for (int e = g * size; e < (g + 1) * size; ++e) {
      float v = biased[e];
      if (v > first) {
        second = first;
        first = v;
      } else if (v > second) {
        second = v;
      }
    }
    sums[g] = size > 1 ? first + second : first;
  }
  int32_t* kept = scratch<int32_t, GroupRow>(r.kept_groups);
  largest(sums, r.groups, r.kept_groups, sums + r.groups, kept);
  std::sort(kept, kept + r.kept_groups);
  for (int g = 0, next = 0; g < r.groups; ++g) {
    if (next < r.kept_groups && kept[next] == g) {
      ++next;
      continue;
    }
    std::fill(biased + g * size, biased + (g + 1) * size, -kInf);
  }
}

void choose(const Router& r, const float* score, int experts, int32_t* chosen) {
  float* biased = scratch<float, BiasedRow>(experts);
  const float* bias = static_cast<const float*>(r.bias.data);
  for (int e = 0; e < experts; ++e) biased[e] = score[e] + (bias ? bias[e] : 0.0f);
  if (r.kept_groups < r.groups) keep_groups(r, experts, biased);
  largest(biased, experts, r.k, scratch<float, BestRow>(r.k), chosen);
}

void route_row(const Router& r, const float* logits, int experts, const int64_t* listed,
               int32_t* chosen, float* weights) {
  float* score = scratch<float, ScoreRow>(experts);
  bool finite = true;
  for (int e = 0; e < experts; ++e) {
    score[e] = score_of(r.score, logits[e]);
    finite &= std::isfinite(score[e]);
  }
  if (!finite) {
    std::fill(chosen, chosen + r.k, -1);
    std::fill(weights, weights + r.k, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  if (listed) {
    for (int k = 0; k < r.k; ++k) {
      HADAL_CHECK(listed[k] >= 0 && listed[k] < experts,
                  "[route] hash table names expert " + std::to_string(listed[k]));
      chosen[k] = static_cast<int32_t>(listed[k]);
    }
  } else {
    choose(r, score, experts, chosen);
  }
  float sum = 0;
  for (int k = 0; k < r.k; ++k) sum += score[chosen[k]];
  for (int k = 0; k < r.k; ++k) {
    float s = score[chosen[k]];
    weights[k] = (r.normalize ? s / (sum + 1e-20f) : s) * r.scale;
  }
}

}  // namespace

void route(Context& ctx, const Tensor& logits, const int32_t* ids, const Router& r,
           const Tensor& chosen, const Tensor& weights) {
  int64_t rows = logits.shape[0], experts = logits.shape[1];
  expect_dtype("route", "logits", logits, DType::kF32);
  expect_adjacent("route", "logits", logits);
  expect_shape("route", "chosen", chosen, {rows, r.k});
  expect_shape("route", "weights", weights, {rows, r.k});
  expect_dtype("route", "chosen", chosen, DType::kI32);
  expect_dtype("route", "weights", weights, DType::kF32);
  if (!r.bias.empty()) expect_shape("route", "bias", r.bias, {experts});
  if (!r.table.empty()) expect_shape("route", "table", r.table, {r.table.shape[0], r.k});
  HADAL_CHECK(r.groups >= 1 && experts % r.groups == 0 && r.kept_groups >= 1 &&
                  r.k <= experts / r.groups * std::min(r.kept_groups, r.groups),
              "[route] cannot choose " + std::to_string(r.k) + " of " + std::to_string(experts) +
                  " experts in " + std::to_string(r.groups) + " groups");
  ctx.threads.run(rows, grain_of(experts * 30), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t* listed = r.table.empty() ? nullptr : r.table.at<const int64_t>(ids[t]);
      route_row(r, logits.at<const float>(t), static_cast<int>(experts), listed,
                chosen.at<int32_t>(t), weights.at<float>(t));
    }
  });
}

void moe_sort(Context&, const Tensor& chosen, int64_t first, int64_t experts, int32_t* offsets,
              int32_t* pair, int32_t* row) {
  int64_t rows = chosen.shape[0], k = chosen.shape[1];
  expect_dtype("moe_sort", "chosen", chosen, DType::kI32);
  std::fill(offsets, offsets + experts + 1, 0);
  auto each = [&](auto&& f) {
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t j = 0; j < k; ++j) {
        int64_t e = *chosen.at<const int32_t>(t, j) - first;
        if (e >= 0 && e < experts) f(t, t * k + j, e);
      }
  };
  // Counting sort. offsets[e] is the next free place of expert e while placing, which leaves it
  // holding the end of e = the start of e + 1; one shift restores the meaning.
  each([&](int64_t, int64_t, int64_t e) { ++offsets[e + 1]; });
  for (int64_t e = 0; e < experts; ++e) offsets[e + 1] += offsets[e];
  each([&](int64_t t, int64_t p, int64_t e) {
    int32_t at = offsets[e]++;
    pair[at] = static_cast<int32_t>(p);
    row[at] = static_cast<int32_t>(t);
  });
  for (int64_t e = experts; e > 0; --e) offsets[e] = offsets[e - 1];
  offsets[0] = 0;
}

}  // namespace hadal::cpu
