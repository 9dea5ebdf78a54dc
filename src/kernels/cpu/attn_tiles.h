// The loops of attn_flow.h for one vector width P (Avx512, Avx2) with FMA, keys of any activation
// type. Include inside the target region of P's instructions.
#pragma once

namespace hadal {
namespace {

template <class P>
struct FmaTiles {
  using V = typename P::V;
  static constexpr int64_t kWide = 2 * P::kLanes;

  template <class T>
  static void tile(const T* const* q, const T* const* k, int64_t d, V scale, float* s) {
    V acc[P::kTileHeads * P::kTileKeys];
    for (auto& a : acc) a = P::zero();
    for (int64_t c = 0; c < d; c += kWide) {
      V kv[P::kTileKeys][2], qv[2];
      for (int j = 0; j < P::kTileKeys; ++j) P::load2(k[j] + c, d - c, kv[j]);
      for (int i = 0; i < P::kTileHeads; ++i) {
        P::load2(q[i] + c, d - c, qv);
        for (int j = 0; j < P::kTileKeys; ++j) {
          V& a = acc[i * P::kTileKeys + j];
          a = P::fmadd(qv[1], kv[j][1], P::fmadd(qv[0], kv[j][0], a));
        }
      }
    }
    P::tile_sums(acc, scale, s, kKeyBlock);
  }

  // Tiles past the last head or key repeat it; their scores land in places that nobody reads.
  template <class T, class Tile>
  static void score_tiles(const T* q, int64_t q_stride, int64_t heads, const T* const* keys,
                          int64_t n, float* s, Tile&& tile) {
    for (int64_t k = 0; k < n; k += P::kTileKeys) {
      const T* kp[P::kTileKeys];
      for (int j = 0; j < P::kTileKeys; ++j) kp[j] = keys[k + j < n ? k + j : n - 1];
      for (int64_t h = 0; h < heads; h += P::kTileHeads) {
        const T* qp[P::kTileHeads];
        for (int i = 0; i < P::kTileHeads; ++i)
          qp[i] = q + (h + i < heads ? h + i : heads - 1) * q_stride;
        tile(qp, kp, s + h * kKeyBlock + k);
      }
    }
  }

  template <class T>
  static void scores(const T* q, int64_t q_stride, int64_t heads, const T* const* keys, int64_t n,
                     int64_t d, float scale, float* s) {
    V factor = P::set1(scale);
    score_tiles(
        q, q_stride, heads, keys, n, s,
        [&](const T* const* qp, const T* const* kp, float* to) { tile(qp, kp, d, factor, to); });
  }

  static float largest(const float* s, int64_t n) {
    int64_t k = 0;
    float most = s[0];
    if (n >= P::kLanes) {
      V top = P::load(s);
      for (k = P::kLanes; k + P::kLanes <= n; k += P::kLanes) top = P::max(top, P::load(s + k));
      most = P::top(top);
    }
    for (; k < n; ++k) most = s[k] > most ? s[k] : most;
    return most;
  }

  static float exp(float x) {
    float lanes[P::kLanes];
    P::store(lanes, P::exp(P::set1(x)));
    return lanes[0];
  }

  // Probabilities past n become 0. Returns the vectors' unrounded total.
  template <class Store>
  static float exponentials(float* s, int64_t n, float top, Store&& store) {
    V total = P::zero(), t = P::set1(-top);
    for (int64_t k = 0; k < kKeyBlock; k += P::kLanes) {
      V e = P::zero();
      if (k + P::kLanes <= n) {
        e = P::exp(P::add(P::load(s + k), t));
      } else if (k < n) {
        float lanes[P::kLanes] = {};
        P::store(lanes, P::exp(P::add(P::load(s + k, n - k), t)));
        e = P::load(lanes, n - k);
      }
      total = P::add(total, e);
      store(k, e);
    }
    return P::sum(total);
  }

  template <class T>
  static float softmax(float* s, int64_t n, float top) {
    return exponentials(
        s, n, top, [&](int64_t k, V e) { P::store(s + k, sizeof(T) == 2 ? P::round_bf16(e) : e); });
  }

  template <class T>
  static void values(const T* const* keys, int64_t n, const float* s, int64_t dv,
                     const float* factor, float* acc) {
    const int64_t width = padded(dv);
    for (int64_t c = 0; c < dv; c += kWide)
      for (int first = 0; first < kHeads; first += P::kValueHeads) {
        V sum[P::kValueHeads][2];
        for (auto& pair : sum) pair[0] = pair[1] = P::zero();
        for (int64_t k = 0; k < n; ++k) {
          V v[2];
          P::load2(keys[k] + c, dv - c, v);
          for (int h = 0; h < P::kValueHeads; ++h) {
            V p = P::set1(s[(first + h) * kKeyBlock + k]);
            sum[h][0] = P::fmadd(p, v[0], sum[h][0]);
            sum[h][1] = P::fmadd(p, v[1], sum[h][1]);
          }
        }
        for (int h = 0; h < P::kValueHeads; ++h)
          merge(sum[h], factor[first + h], acc + (first + h) * width + c);
      }
  }

  static void merge(const V* sum, float factor, float* acc) {
    V f = P::set1(factor);
    P::store(acc, P::fmadd(P::load(acc), f, sum[0]));
    P::store(acc + P::kLanes, P::fmadd(P::load(acc + P::kLanes), f, sum[1]));
  }

  template <class T>
  static void write(const float* acc, float den, int64_t dv, T* out) {
    V d = P::set1(den);
    for (int64_t c = 0; c < dv; c += kWide) {
      V v[2] = {P::div(P::load(acc + c), d), P::div(P::load(acc + c + P::kLanes), d)};
      P::store2(out + c, dv - c, v);
    }
  }
};

}  // namespace
}  // namespace hadal
