// Matrix products with AVX2, FMA and F16C, for CPUs without AVX-512. Everything becomes fp32: x
// once per call, W 32 columns at a time with its scale (the values of weight_value), and products
// are summed in two vectors of eight for each output. The order of additions of one output does not
// depend on the other rows.
#include <algorithm>

#include "kernels/cpu/product.h"
#include "kernels/cpu/target.h"
#include "kernels/cpu/tuned_linear.h"

namespace hadal {
namespace {

constexpr int64_t kStep = 32;       // columns decoded at a time: one FP4 block
constexpr int kMaxRows = 4;         // rows of x in one pass of the inner loop
constexpr int64_t kPanelRows = 16;  // rows of W decoded at a time for many rows of x
constexpr int64_t kCutSteps = 32;   // of K at a time: with kMaxRows rows of x they fit in L1
constexpr int64_t kBlockRows = 32;  // transposed: rows of W between loads of the sums
constexpr int64_t kTokens = 64;     // transposed: rows of x per pass over W

int64_t steps_of(int64_t k) { return (k + kStep - 1) / kStep; }

// fp32 rows of x, zeros from K to the next multiple of kStep.
struct Rows {
  const float* data;
  int64_t stride;
  const float* row(int64_t r) const { return data + r * stride; }
};

HADAL_TARGET_BEGIN(HADAL_TARGET_AVX2)

struct Values {
  __m256 v[4];
};

// 16 FP8 codes as halves: sign, exponent and mantissa fit as they are, 2^-8 times the value. NaN
// codes come as 480 * 2^-8.
inline __m256i fp8_halves(__m128i codes) {
  return _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7),
                          _mm256_set1_epi16(static_cast<short>(0xbf80)));
}

inline Values widen_halves(__m256i a, __m256i b, float scale) {
  __m256 s = _mm256_set1_ps(scale);
  return {_mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(a)), s),
          _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(a, 1)), s),
          _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(b)), s),
          _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(b, 1)), s)};
}

inline Values decode_fp8(const uint8_t* p, float scale) {
  __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  __m256i a = fp8_halves(_mm256_castsi256_si128(codes));
  __m256i b = fp8_halves(_mm256_extracti128_si256(codes, 1));
  const __m256i magnitude = _mm256_set1_epi8(0x7f);
  __m256i nan = _mm256_cmpeq_epi8(_mm256_and_si256(codes, magnitude), magnitude);
  if (_mm256_movemask_epi8(nan)) [[unlikely]] {
    a = _mm256_or_si256(a, _mm256_cvtepi8_epi16(_mm256_castsi256_si128(nan)));
    b = _mm256_or_si256(b, _mm256_cvtepi8_epi16(_mm256_extracti128_si256(nan, 1)));
  }
  return widen_halves(a, b, scale * 256.0f);
}

// 32 FP4 codes, low nibble first: looked up as twice their value, an integer.
inline Values decode_fp4(const uint8_t* p, float scale) {
  const __m128i table = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
  const __m128i low_bits = _mm_set1_epi8(15);
  __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  __m128i even = _mm_shuffle_epi8(table, _mm_and_si128(codes, low_bits));
  __m128i odd = _mm_shuffle_epi8(table, _mm_and_si128(_mm_srli_epi16(codes, 4), low_bits));
  __m128i first = _mm_unpacklo_epi8(even, odd), second = _mm_unpackhi_epi8(even, odd);
  __m256 s = _mm256_set1_ps(0.5f * scale);
  auto widen = [&](__m128i eight) {
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight)), s);
  };
  return {widen(first), widen(_mm_srli_si128(first, 8)), widen(second),
          widen(_mm_srli_si128(second, 8))};
}

inline __m256 widen_bf16(__m128i eight) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(eight), 16));
}

// Columns [k, k + 32) of a row of format T, times `scale` where the format has one.
template <DType T>
inline Values decode(const uint8_t* row, int64_t k, float scale) {
  if constexpr (T == DType::kI8) {
    return decode_fp4(row + k / 2, scale);
  } else if constexpr (T == DType::kF8E4M3) {
    return decode_fp8(row + k, scale);
  } else if constexpr (T == DType::kF16) {
    const auto* p = reinterpret_cast<const __m128i*>(row + 2 * k);
    return {_mm256_cvtph_ps(_mm_loadu_si128(p)), _mm256_cvtph_ps(_mm_loadu_si128(p + 1)),
            _mm256_cvtph_ps(_mm_loadu_si128(p + 2)), _mm256_cvtph_ps(_mm_loadu_si128(p + 3))};
  } else if constexpr (T == DType::kBF16) {
    const auto* p = reinterpret_cast<const __m128i*>(row + 2 * k);
    return {widen_bf16(_mm_loadu_si128(p)), widen_bf16(_mm_loadu_si128(p + 1)),
            widen_bf16(_mm_loadu_si128(p + 2)), widen_bf16(_mm_loadu_si128(p + 3))};
  } else {
    const auto* p = reinterpret_cast<const float*>(row) + k;
    return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8), _mm256_loadu_ps(p + 16),
            _mm256_loadu_ps(p + 24)};
  }
}

// The same for the last `columns` of a row, fewer than 32; zeros after them.
template <DType T>
Values decode_tail(const uint8_t* row, int64_t k, int64_t columns, float scale) {
  constexpr int64_t kBytes = T == DType::kF32 ? 4 : T == DType::kF8E4M3 ? 1 : 2;
  alignas(32) uint8_t copy[kStep * 4] = {};
  std::copy_n(row + k * kBytes, columns * kBytes, copy);
  return decode<T>(copy, 0, scale);
}

// W of format T, row by row.
template <DType T>
struct Source {
  struct Row {
    const uint8_t* data;
    const float* fp8;
    const uint8_t* fp4;
  };

  Source(const Weight& weight, int64_t begin, int64_t end, Scratch& scratch)
      : w(weight), k(weight.k()) {
    if constexpr (T == DType::kF8E4M3) {
      scales = expand_fp8_scales(w, begin, end, scratch);
      first_block = (w.row0 + begin) / kFp8Block;
    }
  }

  Row row(int64_t n) const {
    const auto* data =
        static_cast<const uint8_t*>(w.data.data) + n * w.data.stride[0] * dtype_size(w.data.dtype);
    if constexpr (T == DType::kF8E4M3)
      return {data, scales + ((w.row0 + n) / kFp8Block - first_block) * w.scale.shape[1], nullptr};
    if constexpr (T == DType::kI8) return {data, nullptr, w.scale.at<const uint8_t>(n)};
    return {data, nullptr, nullptr};
  }

  // Step i of a row. Prefetches what follows in memory, far enough ahead to hide DRAM.
  [[gnu::always_inline]] Values load(const Row& r, int64_t i) const {
    constexpr int64_t kBytes = T == DType::kI8 ? 16 : T == DType::kF8E4M3 ? 32 : 64;
    _mm_prefetch(reinterpret_cast<const char*>(r.data) + i * kBytes + 2048, _MM_HINT_T0);
    float scale = 1.0f;
    if constexpr (T == DType::kF8E4M3) scale = r.fp8[i / (kFp8Block / kStep)];
    if constexpr (T == DType::kI8) scale = e8m0_to_f32(r.fp4[i]);
    int64_t left = k - i * kStep;
    if (T != DType::kI8 && left < kStep) return decode_tail<T>(r.data, i * kStep, left, scale);
    return decode<T>(r.data, i * kStep, scale);
  }

  const Weight& w;
  int64_t k;
  const float* scales = nullptr;
  int64_t first_block = 0;
};

// Rows decoded into memory: [rows, steps of all K, 32].
struct Panel {
  using Row = const float*;
  Row row(int64_t n) const { return values + (n - first) * stride; }
  Values load(Row r, int64_t i) const {
    const float* p = r + i * kStep;
    return {_mm256_load_ps(p), _mm256_load_ps(p + 8), _mm256_load_ps(p + 16),
            _mm256_load_ps(p + 24)};
  }
  float* values;
  int64_t first, stride;
};

inline void store_values(float* out, const Values& v) {
  for (int j = 0; j < 4; ++j) _mm256_store_ps(out + 8 * j, v.v[j]);
}

inline float add_lanes(__m256 v) {
  __m128 a = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  a = _mm_add_ps(a, _mm_movehl_ps(a, a));
  return _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)));
}

// Up to kMaxRows rows of x and y.
struct Tokens {
  const float* x[kMaxRows];
  char* y[kMaxRows];
  bool y_bf16;
};

// Steps [begin, end) of K. Where that is not all, sums come from and go to `sums`, [rows, M, 16].
struct Cut {
  int64_t begin, end;
  bool first = true, last = true;
  float* sums = nullptr;
};

inline void put(const Tokens& t, int m, int64_t n, float value) {
  if (t.y_bf16)
    reinterpret_cast<BF16*>(t.y[m])[n] = f32_to_bf16(value);
  else
    reinterpret_cast<float*>(t.y[m])[n] = value;
}

template <int M, class W>
void multiply_rows(const W& w, int64_t begin, int64_t end, const Cut& cut, const Tokens& t) {
  for (int64_t n = begin; n < end; ++n) {
    auto row = w.row(n);
    float* saved = cut.sums + (n - begin) * M * 16;
    __m256 a[M], b[M];
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) {
      a[m] = cut.first ? _mm256_setzero_ps() : _mm256_load_ps(saved + 16 * m);
      b[m] = cut.first ? _mm256_setzero_ps() : _mm256_load_ps(saved + 16 * m + 8);
    }
    for (int64_t i = cut.begin; i < cut.end; ++i) {
      Values v = w.load(row, i);
#pragma GCC unroll 4
      for (int m = 0; m < M; ++m) {
        const float* x = t.x[m] + i * kStep;
        a[m] = _mm256_fmadd_ps(v.v[0], _mm256_load_ps(x), a[m]);
        b[m] = _mm256_fmadd_ps(v.v[1], _mm256_load_ps(x + 8), b[m]);
        a[m] = _mm256_fmadd_ps(v.v[2], _mm256_load_ps(x + 16), a[m]);
        b[m] = _mm256_fmadd_ps(v.v[3], _mm256_load_ps(x + 24), b[m]);
      }
    }
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) {
      if (cut.last) {
        put(t, m, n, add_lanes(_mm256_add_ps(a[m], b[m])));
      } else {
        _mm256_store_ps(saved + 16 * m, a[m]);
        _mm256_store_ps(saved + 16 * m + 8, b[m]);
      }
    }
  }
}

template <class W>
void multiply_tokens(const W& w, int64_t begin, int64_t end, const Cut& cut, const Tokens& t,
                     int64_t count) {
  if (count == 1) return multiply_rows<1>(w, begin, end, cut, t);
  if (count == 2) return multiply_rows<2>(w, begin, end, cut, t);
  if (count == 3) return multiply_rows<3>(w, begin, end, cut, t);
  multiply_rows<4>(w, begin, end, cut, t);
}

Tokens tokens_of(const Rows& x, const Segment& s, int64_t first, int64_t count, DType y) {
  Tokens t{};
  for (int64_t i = 0; i < count; ++i) {
    t.x[i] = x.row(s.x_row(first + i));
    t.y[i] = s.y + (first + i) * s.y_stride;
  }
  t.y_bf16 = y == DType::kBF16;
  return t;
}

// Rows [begin, end) of W times all rows of the segment.
template <DType T>
void multiply_segment(const Product& p, const Rows& x, const Segment& s, int64_t begin,
                      int64_t end) {
  thread_local Scratch scale_memory, panel_memory;
  alignas(32) float sums[kPanelRows * kMaxRows * 16];
  int64_t steps = steps_of(p.k);
  Source<T> source(*s.w, begin, end, scale_memory);
  if (s.count <= kMaxRows)
    return multiply_tokens(source, begin, end, {0, steps}, tokens_of(x, s, 0, s.count, p.y.dtype),
                           s.count);
  Panel panel{static_cast<float*>(panel_memory.grow(kPanelRows * steps * kStep * 4)), 0,
              steps * kStep};
  for (int64_t n = begin; n < end; n += kPanelRows) {
    int64_t last = std::min(end, n + kPanelRows);
    panel.first = n;
    for (int64_t r = n; r < last; ++r)
      for (int64_t i = 0; i < steps; ++i)
        store_values(panel.values + (r - n) * panel.stride + i * kStep,
                     source.load(source.row(r), i));
    for (int64_t first = 0; first < s.count; first += kMaxRows) {
      int64_t count = std::min<int64_t>(kMaxRows, s.count - first);
      Tokens t = tokens_of(x, s, first, count, p.y.dtype);
      for (int64_t i = 0; i < steps; i += kCutSteps) {
        int64_t stop = std::min(steps, i + kCutSteps);
        multiply_tokens(panel, n, last, {i, stop, i == 0, stop == steps, sums}, t, count);
      }
    }
  }
}

template <DType T>
void prepare_row(const uint8_t* row, const float* scale, int64_t k, float* out) {
  for (int64_t i = 0; i < k; i += kStep, out += kStep) {
    float s = scale ? scale[i / kFp8Block] : 1.0f;
    store_values(out, k - i < kStep ? decode_tail<T>(row, i, k - i, s) : decode<T>(row, i, s));
  }
}

// Transposed: sums of M rows of x over the columns of one step, [m * pitch + column].
template <int M, class W>
void add_rows(const W& w, int64_t step, int64_t begin, int64_t end, const float* x, int64_t n_all,
              float* sums, int64_t pitch) {
  __m256 sum[M][4];
#pragma GCC unroll 4
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) sum[m][j] = _mm256_load_ps(sums + m * pitch + 8 * j);
  for (int64_t n = begin; n < end; ++n) {
    Values v = w.load(w.row(n), step);
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) {
      __m256 a = _mm256_set1_ps(x[m * n_all + n]);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) sum[m][j] = _mm256_fmadd_ps(a, v.v[j], sum[m][j]);
    }
  }
#pragma GCC unroll 4
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) _mm256_store_ps(sums + m * pitch + 8 * j, sum[m][j]);
}

// One group, columns of steps [s0, s1): x [count, N] fp32, sums [count, pitch].
template <DType T>
void multiply_transposed(const Weight& w, int64_t s0, int64_t s1, const float* x, int64_t count,
                         float* sums, int64_t pitch) {
  thread_local Scratch scale_memory;
  alignas(32) float cells[kBlockRows * kStep];
  int64_t n = w.n();
  Source<T> source(w, 0, n, scale_memory);
  for (int64_t begin = 0; begin < n; begin += kBlockRows) {
    int64_t end = std::min(n, begin + kBlockRows);
    for (int64_t i = s0; i < s1; ++i) {
      float* out = sums + (i - s0) * kStep;
      if (count == 1) {
        add_rows<1>(source, i, begin, end, x, n, out, pitch);
        continue;
      }
      for (int64_t r = begin; r < end; ++r)
        store_values(cells + (r - begin) * kStep, source.load(source.row(r), i));
      Panel panel{cells, begin, kStep};
      int64_t m = 0;
      for (; m + 2 <= count; m += 2)
        add_rows<2>(panel, 0, begin, end, x + m * n, n, out + m * pitch, pitch);
      if (m < count) add_rows<1>(panel, 0, begin, end, x + m * n, n, out + m * pitch, pitch);
    }
  }
}

HADAL_TARGET_END

Rows prepare_rows(ThreadPool& threads, const Product& p) {
  thread_local Scratch memory;
  int64_t stride = steps_of(p.k) * kStep + 16;  // rows 4 KiB apart would evict each other from L1
  auto* data = static_cast<float*>(memory.grow(p.x_rows * stride * 4));
  DType t = p.x.data.dtype;
  auto* prepare = t == DType::kF32    ? prepare_row<DType::kF32>
                  : t == DType::kBF16 ? prepare_row<DType::kBF16>
                                      : prepare_row<DType::kF8E4M3>;
  // A few rows are not worth waking the workers for.
  threads.run(p.x_rows, std::max<int64_t>(1, 16384 / p.k), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r)
      prepare(static_cast<const uint8_t*>(p.x_data(r)), p.x_scale(r), p.k, data + r * stride);
  });
  return {data, stride};
}

void multiply(Context& ctx, const Product& p) {
  Rows x = prepare_rows(ctx.threads, p);
  auto* kernel = p.w_dtype == DType::kF32      ? multiply_segment<DType::kF32>
                 : p.w_dtype == DType::kF16    ? multiply_segment<DType::kF16>
                 : p.w_dtype == DType::kBF16   ? multiply_segment<DType::kBF16>
                 : p.w_dtype == DType::kF8E4M3 ? multiply_segment<DType::kF8E4M3>
                                               : multiply_segment<DType::kI8>;
  for_each_row_range(ctx.threads, p, 4,
                     [&](const Segment& s, int64_t b, int64_t e, int) { kernel(p, x, s, b, e); });
}

// Columns of steps [s0, s1) of group g.
void multiply_group(const Tensor& x, const Weight& w, const Tensor& y, int64_t g, int64_t s0,
                    int64_t s1) {
  thread_local Scratch sum_memory, x_memory;
  int64_t rows = x.shape[0], n = w.n(), k = w.k(), pitch = (s1 - s0) * kStep;
  auto* sums = static_cast<float*>(sum_memory.grow(std::min(rows, kTokens) * pitch * 4));
  auto* values = static_cast<float*>(x_memory.grow(std::min(rows, kTokens) * n * 4));
  auto* kernel = w.data.dtype == DType::kF32      ? multiply_transposed<DType::kF32>
                 : w.data.dtype == DType::kF16    ? multiply_transposed<DType::kF16>
                 : w.data.dtype == DType::kBF16   ? multiply_transposed<DType::kBF16>
                 : w.data.dtype == DType::kF8E4M3 ? multiply_transposed<DType::kF8E4M3>
                                                  : multiply_transposed<DType::kI8>;
  for (int64_t m0 = 0; m0 < rows; m0 += kTokens) {
    int64_t count = std::min(kTokens, rows - m0);
    std::fill_n(sums, count * pitch, 0.0f);
    for (int64_t m = 0; m < count; ++m)
      for (int64_t i = 0; i < n; ++i)
        values[m * n + i] = x.dtype == DType::kF32 ? *x.at<const float>(m0 + m, g, i)
                                                   : load(*x.at<const BF16>(m0 + m, g, i));
    kernel(w, s0, s1, values, count, sums, pitch);
    int64_t first = s0 * kStep, last = std::min(k, s1 * kStep);
    for (int64_t m = 0; m < count; ++m)
      for (int64_t c = first; c < last; ++c) {
        float v = sums[m * pitch + c - first];
        if (y.dtype == DType::kF32)
          *y.at<float>(m0 + m, g, c) = v;
        else
          store(*y.at<BF16>(m0 + m, g, c), v);
      }
  }
}

}  // namespace

void avx2_linear(Context& ctx, const Activation& x, const Weight& w, const Tensor& y) {
  multiply(ctx, product_of(x, w, y));
}

void avx2_grouped_linear(Context& ctx, const Activation& x, const int32_t* rows,
                         const int32_t* offsets, std::span<const Weight> experts, const Tensor& y) {
  multiply(ctx, product_of(x, rows, offsets, experts, y));
}

void avx2_batched_linear(Context& ctx, const Tensor& x, std::span<const Weight> w,
                         const Tensor& y) {
  multiply(ctx, product_of(x, w, y));
}

void avx2_batched_linear_transposed(Context& ctx, const Tensor& x, std::span<const Weight> w,
                                    const Tensor& y) {
  int64_t groups = x.shape[1], steps = steps_of(w[0].k());
  ctx.threads.run(groups * steps, 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t g = begin / steps; g * steps < end; ++g)
      multiply_group(x, w[g], y, g, std::max(begin - g * steps, int64_t{0}),
                     std::min(end - g * steps, steps));
  });
}

}  // namespace hadal
