// The loops of row_kernels.h over vectors of L lanes, written with the compiler's vector types so
// that one text serves every instruction set. Include inside the target region of one, after its
// own includes. Conversions are those of base/dtype.h without branches.
#pragma once

namespace hadal {
namespace {

#define HADAL_INLINE __attribute__((always_inline)) static inline

template <int L>
struct Lanes;
template <>
struct Lanes<4> {
  typedef float F __attribute__((vector_size(16)));
  typedef int32_t I __attribute__((vector_size(16)));
  typedef uint32_t U __attribute__((vector_size(16)));
  typedef uint16_t H __attribute__((vector_size(8)));
  typedef uint8_t B __attribute__((vector_size(4)));
};
template <>
struct Lanes<8> {
  typedef float F __attribute__((vector_size(32)));
  typedef int32_t I __attribute__((vector_size(32)));
  typedef uint32_t U __attribute__((vector_size(32)));
  typedef uint16_t H __attribute__((vector_size(16)));
  typedef uint8_t B __attribute__((vector_size(8)));
};
template <>
struct Lanes<16> {
  typedef float F __attribute__((vector_size(64)));
  typedef int32_t I __attribute__((vector_size(64)));
  typedef uint32_t U __attribute__((vector_size(64)));
  typedef uint16_t H __attribute__((vector_size(32)));
  typedef uint8_t B __attribute__((vector_size(16)));
};

template <int L>
struct Rows {
  using F = typename Lanes<L>::F;  // floats
  using I = typename Lanes<L>::I;  // their bits, signed and not
  using U = typename Lanes<L>::U;
  using H = typename Lanes<L>::H;  // bf16
  using B = typename Lanes<L>::B;  // e4m3

  HADAL_INLINE F set1(float x) { return x - F{}; }

  // Between a vector and n elements in memory, of the size of either's; whole vectors in one move.
  template <class To, class From>
  HADAL_INLINE void copy(To* to, const From* from, int64_t n) {
    constexpr int64_t kSize = sizeof(To) < sizeof(From) ? sizeof(To) : sizeof(From);
    if (n >= L) {
      __builtin_memcpy(to, from, kSize * L);
    } else {
      __builtin_memcpy(to, from, kSize * n);
    }
  }

  // Lanes past n are 0, and nothing past n is read or written.
  HADAL_INLINE F load(const float* p, int64_t n) {
    F v{};
    copy(&v, p, n);
    return v;
  }
  HADAL_INLINE F load(const BF16* p, int64_t n) {
    H h{};
    copy(&h, p, n);
    return (F)(__builtin_convertvector(h, U) << 16);
  }
  HADAL_INLINE void store(float* p, F v, int64_t n) { copy(p, &v, n); }
  HADAL_INLINE void store(BF16* p, F v, int64_t n) {
    U u = (U)v;
    U r = (v != v) ? (u | 0x400000u) : u + 0x7fffu + ((u >> 16) & 1u);
    H h = __builtin_convertvector(r >> 16, H);
    copy(p, &h, n);
  }

  HADAL_INLINE F abs(F v) { return (F)((I)v & 0x7fffffff); }
  HADAL_INLINE F with_sign(F size, F of) {
    return (F)(((I)size & 0x7fffffff) | ((I)of & (I)(U{} + 0x80000000u)));
  }

  // Sum of squares of one row: short fp32 chains, their totals in double.
  template <class T>
  HADAL_INLINE double squares(const T* x, int64_t n) {
    constexpr int kChains = L >= 16 ? 4 : 8;
    F acc[kChains] = {};
    int64_t i = 0;
    for (; i + kChains * L <= n; i += kChains * L)
      for (int c = 0; c < kChains; ++c) {
        F v = load(x + i + c * L, L);
        acc[c] += v * v;
      }
    for (; i < n; i += L) {
      F v = load(x + i, n - i);
      acc[0] += v * v;
    }
    double total = 0;
    for (const F& a : acc)
      for (int l = 0; l < L; ++l) total += a[l];
    return total;
  }

  HADAL_INLINE float rms_factor(double squares, float eps, int64_t n) {
    return static_cast<float>(
        1.0 / __builtin_sqrt(squares / static_cast<double>(n) + static_cast<double>(eps)));
  }

  template <class X, class T>
  HADAL_INLINE void scaled(const X* x, float factor, const float* w, int64_t n, T* y) {
    if (w) {
      for (int64_t i = 0; i < n; i += L)
        store(y + i, load(x + i, n - i) * factor * load(w + i, n - i), n - i);
    } else {
      for (int64_t i = 0; i < n; i += L) store(y + i, load(x + i, n - i) * factor, n - i);
    }
  }

  template <class T>
  static void rms(const T* x, const float* w, float eps, int64_t n, T* y) {
    scaled(x, rms_factor(squares(x, n), eps, n), w, n, y);
  }

  template <class T>
  static void add_rms(T* residual, const T* delta, const float* w, float eps, int64_t n, float* sum,
                      T* y) {
    for (int64_t i = 0; i < n; i += L) {
      F v = load(residual + i, n - i) + load(delta + i, n - i);
      store(sum + i, v, n - i);
      store(residual + i, v, n - i);
    }
    scaled(sum, rms_factor(squares(sum, n), eps, n), w, n, y);
  }

  // Of finite values; a NaN does not count.
  template <class T>
  HADAL_INLINE float abs_max(const T* x, int64_t n) {
    I most{};
    for (int64_t i = 0; i < n; i += L) {
      I a = (I)abs(load(x + i, n - i));
      a = a > 0x7f800000 ? I{} : a;
      most = a > most ? a : most;
    }
    int32_t top = 0;
    for (int l = 0; l < L; ++l) top = most[l] > top ? most[l] : top;
    float f;
    __builtin_memcpy(&f, &top, 4);
    return f;
  }

  // The e4m3 code of v / s, saturating; NaN gives 0x7F with its sign.
  HADAL_INLINE U e4m3_code(F v) {
    U u = (U)v, a = u & 0x7fffffffu;
    U normal = ((a + 0x7ffffu + ((a >> 20) & 1u)) >> 20) - 960u;
    normal = (I)normal > 0x7e ? U{} + 0x7eu : normal;
    // 2^14 has a spacing of 2^-9, that of subnormal codes.
    U small = (U)((F)a + 0x1p14f) - 0x46800000u;
    U code = (I)a < 0x3c800000 ? small : normal;
    code = (I)a > 0x7f800000 ? U{} + 0x7fu : code;
    return code | ((u >> 24) & 0x80u);
  }

  // The value of that code.
  HADAL_INLINE F e4m3_value(F v) {
    U a = (U)v & 0x7fffffffu;
    F normal = (F)((a + 0x7ffffu + ((a >> 20) & 1u)) & 0xfff00000u);
    normal = normal > 448.0f ? set1(448.0f) : normal;
    F small = ((F)a + 0x1p14f) - 0x1p14f;
    F value = (I)a < 0x3c800000 ? small : normal;
    value = (I)a > 0x7f800000 ? v : value;
    return with_sign(value, v);
  }

  // The nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6, ties to the even code: by sums whose spacing is
  // that of the codes around v.
  HADAL_INLINE F e2m1_value(F v) {
    F a = abs(v);
    F half = (a + 0x1.8p22f) - 0x1.8p22f, one = (a + 0x1.8p23f) - 0x1.8p23f,
      two = (a + 0x1.8p24f) - 0x1.8p24f;
    F value = a < 2.0f ? half : (a < 4.0f ? one : two);
    value = value > 6.0f ? set1(6.0f) : value;
    return with_sign(value, v);
  }

  template <class T>
  static float quantize_fp8(const T* x, int64_t n, bool pow2, uint8_t* codes) {
    float s = fp8_block_scale(abs_max(x, n), pow2);
    F by = set1(s);
    for (int64_t i = 0; i < n; i += L) {
      F v = load(x + i, n - i) / by;
      v = v > 448.0f ? set1(448.0f) : v;
      v = v < -448.0f ? set1(-448.0f) : v;
      B b = __builtin_convertvector(e4m3_code(v), B);
      copy(codes + i, &b, n - i);
    }
    return s;
  }

  template <class T>
  static void qdq_fp8(T* x, int64_t n, int64_t block) {
    for (int64_t c = 0; c < n; c += block) {
      int64_t size = n - c < block ? n - c : block;
      F s = set1(fp8_block_scale(abs_max(x + c, size), true));
      for (int64_t i = 0; i < size; i += L) {
        T* at = x + c + i;
        store(at, e4m3_value(load(at, size - i) / s) * s, size - i);
      }
    }
  }

  template <class T>
  static void qdq_fp4(T* x, int64_t n) {
    for (int64_t c = 0; c < n; c += 32) {
      F s = set1(fp4_block_scale(abs_max(x + c, 32)));
      for (int64_t i = c; i < c + 32; i += L) store(x + i, e2m1_value(load(x + i, L) / s) * s, L);
    }
  }

  // Lanes in another order: lane l of the result is lane Pick::at(l) of v.
  template <class Pick, int... kLane>
  HADAL_INLINE F reorder(F v, std::integer_sequence<int, kLane...>) {
    return __builtin_shufflevector(v, v, Pick::at(kLane)...);
  }
  template <class Pick>
  HADAL_INLINE F reorder(F v) {
    return reorder<Pick>(v, std::make_integer_sequence<int, L>());
  }
  template <int kMask>
  struct Across {  // the lane whose number differs in kMask
    static constexpr int at(int lane) { return lane ^ kMask; }
  };
  struct First {  // of a pair of neighbours
    static constexpr int at(int lane) { return lane & ~1; }
  };
  struct Second {
    static constexpr int at(int lane) { return lane | 1; }
  };

  // A butterfly between lanes `kHalf` apart: other + self, or other - self in the upper half.
  template <int kHalf>
  HADAL_INLINE F butterfly(F v) {
    if constexpr (kHalf < L) {
      I sign{};
      for (int l = 0; l < L; ++l) sign[l] = l & kHalf ? INT32_MIN : 0;
      return reorder<Across<kHalf>>(v) + (F)((I)v ^ sign);
    } else {
      return v;
    }
  }

  template <class T>
  static void hadamard(T* x, int64_t n, float* buffer) {
    float norm = static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(n)));
    if (n < L) {
      for (int64_t i = 0; i < n; ++i) buffer[i] = hadal::load(x[i]);
      for (int64_t half = 1; half < n; half *= 2)
        for (int64_t i = 0; i < n; ++i)
          if (!(i & half)) {
            float a = buffer[i], b = buffer[i + half];
            buffer[i] = a + b;
            buffer[i + half] = a - b;
          }
      for (int64_t i = 0; i < n; ++i) hadal::store(x[i], buffer[i] * norm);
      return;
    }
    for (int64_t i = 0; i < n; i += L) {
      F v = butterfly<2>(butterfly<1>(load(x + i, L)));
      store(buffer + i, butterfly<8>(butterfly<4>(v)), L);
    }
    for (int64_t half = L; half < n; half *= 2)
      for (int64_t base = 0; base < n; base += 2 * half)
        for (int64_t i = base; i < base + half; i += L) {
          F a = load(buffer + i, L), b = load(buffer + i + half, L);
          store(buffer + i, a + b, L);
          store(buffer + i + half, a - b, L);
        }
    for (int64_t i = 0; i < n; i += L) store(x + i, load(buffer + i, L) * norm, L);
  }

  // exp_approx(), lane by lane.
  HADAL_INLINE F exp(F x) {
    x = x < kExpLow ? set1(kExpLow) : x;
    x = x > kExpHigh ? set1(kExpHigh) : x;
    F t = x * kLog2E + kRoundMagic, n = t - kRoundMagic;
    F r = x - n * kLn2High;
    r = r - n * kLn2Low;
    F p = set1(kExpPoly[0]);
    for (int i = 1; i < 6; ++i) p = p * r + kExpPoly[i];
    p = p * (r * r) + r + 1.0f;
    return (F)((U)p + ((U)t << 23));
  }

  template <class T>
  static void swiglu(const T* gate, const T* up, float bound, float w, int64_t n, T* y) {
    for (int64_t i = 0; i < n; i += L) {
      F g = load(gate + i, n - i), u = load(up + i, n - i);
      g = g > bound ? set1(bound) : g;
      u = u > bound ? set1(bound) : u;
      u = u < -bound ? set1(-bound) : u;
      store(y + i, w * (g / (1.0f + exp(-g)) * u), n - i);
    }
  }

  template <class T>
  static void accumulate(const T* x, float w, int64_t n, float* sum) {
    for (int64_t i = 0; i < n; i += L)
      store(sum + i, load(sum + i, n - i) + w * load(x + i, n - i), n - i);
  }

  template <class T>
  static void widen(const T* x, int64_t n, float* y) {
    for (int64_t i = 0; i < n; i += L) store(y + i, load(x + i, n - i), n - i);
  }

  template <class T>
  static void finish(const float* sum, const T* x, int64_t n, T* y) {
    for (int64_t i = 0; i < n; i += L) {
      F v = load(sum + i, n - i);
      store(y + i, x ? v + load(x + i, n - i) : v, n - i);
    }
  }

  template <class T>
  static void expand4(const T* a, const float* post, const float* m, int64_t n, T* x,
                      int64_t stride) {
    T *x1 = x + stride, *x2 = x1 + stride, *x3 = x2 + stride;
    for (int64_t i = 0; i < n; i += L) {
      int64_t left = n - i;
      F v = load(a + i, left), v0 = load(x + i, left), v1 = load(x1 + i, left),
        v2 = load(x2 + i, left), v3 = load(x3 + i, left);
      store(x + i, post[0] * v + m[0] * v0 + m[4] * v1 + m[8] * v2 + m[12] * v3, left);
      store(x1 + i, post[1] * v + m[1] * v0 + m[5] * v1 + m[9] * v2 + m[13] * v3, left);
      store(x2 + i, post[2] * v + m[2] * v0 + m[6] * v1 + m[10] * v2 + m[14] * v3, left);
      store(x3 + i, post[3] * v + m[3] * v0 + m[7] * v1 + m[11] * v2 + m[15] * v3, left);
    }
  }

  template <class T>
  static void collapse4(const T* x, int64_t stride, const float* pre, int64_t n, T* y) {
    const T *x1 = x + stride, *x2 = x1 + stride, *x3 = x2 + stride;
    for (int64_t i = 0; i < n; i += L) {
      int64_t left = n - i;
      store(y + i,
            pre[0] * load(x + i, left) + pre[1] * load(x1 + i, left) + pre[2] * load(x2 + i, left) +
                pre[3] * load(x3 + i, left),
            left);
    }
  }

  // (a, b) -> (a c - b s, a s + b c) of neighbours: each lane times its cosine, plus the other
  // lane of its pair times the sine, negative in the first.
  template <class T>
  static void rotate(const T* x, const float* angles, float sign, int64_t pairs, T* y) {
    F signs{};
    for (int l = 0; l < L; ++l) signs[l] = l % 2 ? sign : -sign;
    for (int64_t i = 0; i < 2 * pairs; i += L) {
      F v = load(x + i, 2 * pairs - i), a = load(angles + i, 2 * pairs - i);
      F c = reorder<First>(a), s = reorder<Second>(a) * signs;
      store(y + i, v * c + reorder<Across<1>>(v) * s, 2 * pairs - i);
    }
  }

  template <class T>
  static constexpr RowLoops<T> loops() {
    return {widen<T>,   rms<T>,       add_rms<T>, quantize_fp8<T>, qdq_fp8<T>,
            qdq_fp4<T>, hadamard<T>,  swiglu<T>,  accumulate<T>,   finish<T>,
            expand4<T>, collapse4<T>, rotate<T>};
  }
};

#undef HADAL_INLINE

}  // namespace
}  // namespace hadal
