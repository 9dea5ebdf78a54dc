// One query head over a list of keys, the definition that both reference attentions share: dot
// products and sums in double, softmax with the sink counted in its maximum.
#pragma once

#include <limits>

#include "kernels/cpu/attn_keys.h"

namespace hadal {

struct RefScores {};
struct RefValue {};

// out[0, dv) = sum_i round_T(exp(s_i - max)) * key_i[0, dv) / (sum_i exp(s_i - max) + sink term).
// `sink` = -inf for none. With no key the result is 0.
template <class T>
void attend_head(const T* q, KeyList<T> list, int64_t d, int64_t dv, float scale, float sink,
                 T* out) {
  float* s = scratch<float, RefScores>(list.size);
  float top = sink;
  for (int64_t i = 0; i < list.size; ++i) {
    s[i] = static_cast<float>(dot_double(q, list.keys[i], d) * scale);
    top = std::max(top, s[i]);
  }
  double den = list.size || std::isfinite(sink) ? std::exp(double{sink} - top) : 1.0;
  double* sum = scratch<double, RefValue>(dv);
  std::fill(sum, sum + dv, 0.0);
  for (int64_t i = 0; i < list.size; ++i) {
    float p = static_cast<float>(std::exp(double{s[i]} - top));
    den += p;
    double weight = rounded<T>(p);
    const T* v = list.keys[i];
    for (int64_t c = 0; c < dv; ++c) sum[c] += weight * load(v[c]);
  }
  for (int64_t c = 0; c < dv; ++c) store(out[c], static_cast<float>(sum[c] / den));
}

}  // namespace hadal
