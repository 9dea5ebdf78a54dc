// The arithmetic of mHC that its kernels share: the post map of a column, the gate of a mix, a step
// of Sinkhorn, and the checks of the launchers. Part of the portable kernels (kl.h); contract in
// kernels/hyper.h.
#pragma once

#include "kernels/cpu/element.h"
#include "kernels/gpu/kl.h"
#include "kernels/hyper.h"

namespace hadal::KL_TARGET {

inline constexpr int kHyperStreams = 8;  // at most
inline constexpr int kHyperAll = 2 * kHyperStreams + kHyperStreams * kHyperStreams;

template <class T>
struct HyperArgs {
  View<T> x, y, a;  // a: the branch output of the pending post, or null
  View<float> fn, post, comb;
  const float *base, *scale;
  int64_t rows, columns;
  int streams, mixes, iterations;
  float norm_eps, eps;
  bool head;  // pre and y only
};

// X[t, k, c] of all k <- post and comb of the token; next[k] is what was stored. At most kMost
// streams. Nothing is stored before all is loaded: a load behind a store would wait for it.
template <int kMost = kHyperStreams, class T>
KL_DEVICE void hyper_post_column(const HyperArgs<T>& p, int64_t t, int64_t c,
                                 float (&next)[kHyperStreams]) {
  float old[kMost] = {}, in = load(*p.a.at(t, c));
  KL_UNROLL
  for (int j = 0; j < kMost; ++j)
    if (j < p.streams) old[j] = load(*p.x.at(t, j, c));
  KL_UNROLL
  for (int k = 0; k < kMost; ++k) {
    if (k >= p.streams) continue;
    float sum = *p.post.at(t, k) * in;
    KL_UNROLL
    for (int j = 0; j < kMost; ++j)
      if (j < p.streams) sum = kl::fma(*p.comb.at(t, j, k), old[j], sum);
    next[k] = rounded_to<T>(sum);
  }
  KL_UNROLL
  for (int k = 0; k < kMost; ++k)
    if (k < p.streams) store(*p.x.at(t, k, c), next[k]);
}

// What is added to and multiplied with mix m: loaded early where loading would delay.
struct HyperGate {
  float scale, base;
};
template <class T>
KL_DEVICE HyperGate hyper_gate_of(const HyperArgs<T>& p, int m) {
  return {p.scale[m < p.streams ? 0 : m < 2 * p.streams ? 1 : 2], p.base[m]};
}

// pre or post from the raw mix m of a token, or the logit of comb; `squares`: the sum over its
// streams.
template <class T>
KL_DEVICE float hyper_gate(const HyperArgs<T>& p, int m, float mix, float squares, HyperGate gate) {
  float width = static_cast<float>(p.streams * p.columns);
  float v = mix / sqrtf(squares / width + p.norm_eps);
  v = v * gate.scale + gate.base;
  if (m < p.streams) return kl::sigmoid(v) + p.eps;
  return m < 2 * p.streams ? 2.0f * kl::sigmoid(v) : v;
}

// Softmax of a row, or division by its sum; `step` 1 for rows, R for columns.
KL_DEVICE void hyper_normalise(float* v, int n, int step, bool softmax, float eps) {
  float sum = softmax ? 0.0f : eps, top = v[0];
  if (softmax) {
    for (int k = 1; k < n; ++k) top = kl::max_of(top, v[k * step]);
    for (int k = 0; k < n; ++k) v[k * step] = kl::exp_accurate(v[k * step] - top);
  }
  for (int k = 0; k < n; ++k) sum += v[k * step];
  for (int k = 0; k < n; ++k) v[k * step] = v[k * step] / sum + (softmax ? eps : 0.0f);
}

template <class T>
HyperArgs<T> hyper_args(const Tensor& x, const HyperWeights& w, const HyperParams& p,
                        const Tensor& y) {
  HyperArgs<T> a = {};
  a.x = view<T>(x);
  a.y = view<T>(y);
  a.fn = view<float>(w.fn);
  a.base = static_cast<const float*>(w.base.data);
  a.scale = static_cast<const float*>(w.scale.data);
  a.rows = x.shape[0];
  a.streams = static_cast<int>(x.shape[1]);
  a.columns = x.shape[2];
  a.mixes = static_cast<int>(w.fn.shape[0]);
  a.iterations = p.sinkhorn_iters;
  a.norm_eps = p.norm_eps;
  a.eps = p.eps;
  return a;
}

inline void check_hyper(const char* op, const Tensor& x, const HyperWeights& w, int64_t mixes,
                        const Tensor& y) {
  int64_t r = x.shape[1], c = x.shape[2];
  HADAL_CHECK(r >= 1 && r <= kHyperStreams,
              std::string("[") + op + "] x " + x.describe() + ", at most 8 streams are supported");
  expect_shape(op, "fn", w.fn, {mixes, r * c});
  expect_shape(op, "base", w.base, {mixes});
  expect_shape(op, "y", y, {x.shape[0], c});
  expect_dtype(op, "y", y, x.dtype);
  for (const Tensor* f : {&w.fn, &w.base, &w.scale}) expect_dtype(op, "weights", *f, DType::kF32);
}

inline void check_hyper_post_pre(const Tensor& a, const Tensor& x, const HyperWeights& w,
                                 const Tensor& y, const Tensor& post, const Tensor& comb) {
  int64_t rows = x.shape[0], r = x.shape[1];
  check_hyper("hyper_pre", x, w, 2 * r + r * r, y);
  expect_shape("hyper_pre", "scale", w.scale, {3});
  expect_shape("hyper_pre", "post", post, {rows, r});
  expect_shape("hyper_pre", "comb", comb, {rows, r, r});
  if (!a.empty()) expect_shape("hyper_post_pre", "a", a, {rows, x.shape[2]});
}

inline void check_hyper_head(const Tensor& x, const HyperWeights& w, const Tensor& y) {
  check_hyper("hyper_head", x, w, x.shape[1], y);
  expect_shape("hyper_head", "scale", w.scale, {1});
}

template <class T>
HyperArgs<T> hyper_args(const Tensor& a, const Tensor& x, const HyperWeights& w,
                        const HyperParams& p, const Tensor& y, const Tensor& post,
                        const Tensor& comb) {
  HyperArgs<T> args = hyper_args<T>(x, w, p, y);
  args.a = view<T>(a);
  args.post = view<float>(post);
  args.comb = view<float>(comb);
  return args;
}

}  // namespace hadal::KL_TARGET
