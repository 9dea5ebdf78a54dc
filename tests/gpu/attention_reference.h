// Attention of one head in double precision, and how close a kernel must come to it.
#pragma once

#include "gpu/reference.h"

namespace hadal::reference {

// One head over keys given as rows of doubles; `values` leading numbers of each are its value.
struct Attended {
  Doubles out, size;  // size: the sum of |probability * value|, which bounds the rounding
};

inline Attended attend(const Doubles& q, const std::vector<Doubles>& keys, double scale,
                       double sink, int64_t values) {
  Doubles s;
  double top = sink, den = 0;
  for (const Doubles& key : keys) {
    double dot = 0;
    for (size_t d = 0; d < q.size(); ++d) dot += q[d] * key[d];
    s.push_back(dot * scale);
    top = std::max(top, s.back());
  }
  if (std::isfinite(sink)) den += std::exp(sink - top);
  Attended a{Doubles(values, 0.0), Doubles(values, 0.0)};
  for (size_t i = 0; i < keys.size(); ++i) {
    double p = std::exp(s[i] - top);
    den += p;
    for (int64_t c = 0; c < values; ++c) {
      a.out[c] += p * keys[i][c];
      a.size[c] += p * std::fabs(keys[i][c]);
    }
  }
  for (int64_t c = 0; den > 0 && c < values; ++c) a.out[c] /= den, a.size[c] /= den;
  return a;
}

inline Doubles row_of(const Tensor& t, int64_t i, int64_t j = 0) {
  Doubles out;
  for (int64_t k = 0; k < t.shape[t.rank - 1]; ++k)
    out.push_back(t.rank == 2 ? get(t, i, k) : get(t, i, j, k));
  return out;
}

// bf16: each probability and the result are rounded once.
inline void expect_attended(const Tensor& out, int64_t t, int64_t h, const Attended& want,
                            const std::string& what) {
  double unit = out.dtype == DType::kBF16 ? 0x1p-8 : 1e-5;
  for (size_t c = 0; c < want.out.size(); ++c) {
    double got = get(out, t, h, static_cast<int64_t>(c));
    ASSERT_LE(std::fabs(got - want.out[c]),
              unit * want.size[c] + unit * std::fabs(want.out[c]) + 1e-30)
        << what << " row " << t << " head " << h << " column " << c << ": " << got;
  }
}

}  // namespace hadal::reference
