// mHC in double precision, and its inputs that hide no fault: tokens scaled by their index, one
// stream 100 times larger.
#pragma once

#include <algorithm>

#include "gpu/reference.h"

namespace hadal::reference {

struct Case {
  DType type;
  int64_t rows, streams, columns;
  double fn_scale;  // of the projection; 1 / sqrt(R C) makes logits of size 1
};

inline std::string name(const Case& c) {
  return std::string(dtype_name(c.type)) + " rows " + std::to_string(c.rows) + " streams " +
         std::to_string(c.streams) + " columns " + std::to_string(c.columns) + " fn " +
         std::to_string(c.fn_scale);
}

struct Hyper {
  Tensor x, a, y, post, comb;
  HyperWeights w;
  HyperParams p;
};

inline Hyper make(Arena& arena, const Case& c, bool head = false) {
  int64_t n = head ? c.streams : c.streams * (2 + c.streams);
  Hyper h;
  h.x = arena.normal(c.type, {c.rows, c.streams, c.columns}, 3,
                     [](int64_t i) { return static_cast<double>(i + 1); });
  for (int64_t t = 0; t < c.rows; ++t)
    for (int64_t i = 0; i < c.columns; ++i) set(h.x, 100 * get(h.x, t, 0, i), t, 0, i);
  h.a = arena.normal(c.type, {c.rows, c.columns}, 1);
  h.w.fn =
      arena.normal(DType::kF32, {n, c.streams * c.columns}, 0, [&](int64_t) { return c.fn_scale; });
  h.w.base = arena.normal(DType::kF32, {n});
  h.w.scale = arena.normal(DType::kF32, {head ? 1 : 3});
  h.y = arena.poison(c.type, {c.rows, c.columns}, 2);
  h.post = arena.poison(DType::kF32, {c.rows, c.streams});
  h.comb = arena.poison(DType::kF32, {c.rows, c.streams, c.streams});
  return h;
}

inline double sigmoid(double v) { return 1 / (1 + std::exp(-v)); }

struct Maps {
  Doubles pre, post, comb, y;
};

inline void normalise(Doubles& m, int64_t begin, int64_t n, int64_t step, double eps) {
  double sum = eps;
  for (int64_t k = 0; k < n; ++k) sum += m[begin + k * step];
  for (int64_t k = 0; k < n; ++k) m[begin + k * step] /= sum;
}

// The definition (kernels/hyper.h), in double.
inline Maps pre(const Hyper& h, bool head = false) {
  Maps out;
  int64_t r = h.x.shape[1], c = h.x.shape[2], n = h.w.fn.shape[0];
  for (int64_t t = 0; t < h.x.shape[0]; ++t) {
    double squares = 0;
    for (int64_t k = 0; k < r * c; ++k) squares += std::pow(get(h.x, t, k / c, k % c), 2);
    double factor = 1 / std::sqrt(squares / static_cast<double>(r * c) + h.p.norm_eps);
    Doubles m(n, 0.0);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t k = 0; k < r * c; ++k) m[i] += get(h.w.fn, i, k) * get(h.x, t, k / c, k % c);
      m[i] = m[i] * factor * get(h.w.scale, i < r ? 0 : i < 2 * r ? 1 : 2) + get(h.w.base, i);
    }
    for (int64_t j = 0; j < r; ++j) out.pre.push_back(sigmoid(m[j]) + h.p.eps);
    for (int64_t i = 0; i < c; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < r; ++j) sum += out.pre[t * r + j] * get(h.x, t, j, i);
      out.y.push_back(sum);
    }
    if (head) continue;
    for (int64_t k = 0; k < r; ++k) out.post.push_back(2 * sigmoid(m[r + k]));
    Doubles comb(m.begin() + 2 * r, m.end());
    for (int64_t j = 0; j < r; ++j) {
      double top = *std::max_element(&comb[j * r], &comb[j * r] + r);
      for (int64_t k = 0; k < r; ++k) comb[j * r + k] = std::exp(comb[j * r + k] - top);
      normalise(comb, j * r, r, 1, 0);
      for (int64_t k = 0; k < r; ++k) comb[j * r + k] += h.p.eps;
    }
    for (int64_t k = 0; k < r; ++k) normalise(comb, k, r, r, h.p.eps);
    for (int i = 1; i < h.p.sinkhorn_iters; ++i) {
      for (int64_t j = 0; j < r; ++j) normalise(comb, j * r, r, 1, h.p.eps);
      for (int64_t k = 0; k < r; ++k) normalise(comb, k, r, r, h.p.eps);
    }
    out.comb.insert(out.comb.end(), comb.begin(), comb.end());
  }
  return out;
}

// The worst error of post and comb, which see every fault of the projection.
inline double map_error(const Hyper& h, const Maps& want) {
  double worst = 0;
  for (auto [got, numbers] : {std::pair{h.post, &want.post}, std::pair{h.comb, &want.comb}}) {
    int64_t n = 0;
    Arena::each(got, [&, &got = got, &numbers = numbers](int64_t i, int64_t j, int64_t k) {
      double e = std::fabs(get(got, i, j, k) - (*numbers)[n++]);
      worst = std::isnan(e) ? INFINITY : std::max(worst, e);
    });
  }
  return worst;
}

}  // namespace hadal::reference
