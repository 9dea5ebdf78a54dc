// Matrix products with AVX-512. The inner loop multiplies one row of W with M rows of x, one chunk
// of 128 columns at a time: the products of a chunk are summed per lane, the sum is scaled by
// scale_w * scale_x and added to the accumulator. The order of additions of one output never
// depends on M or the caller, so few and many rows give the same bits. One row of W at a time,
// because then each thread reads one stream of memory, which prefetching serves best.
//   few rows   W is decoded in registers as it streams from memory
//   many rows  a panel of W is decoded once into L2 and multiplied with all rows of x
#include "kernels/cpu/avx512_activations.h"
#include "kernels/cpu/tuned_linear.h"

namespace hadal {
namespace {

constexpr int kMaxRows = 8;          // rows of x in one pass of the inner loop
constexpr int64_t kDirectRows = 16;  // up to here decoding again for each pass is cheaper
constexpr int64_t kPanelRows = 32;

// Up to kMaxRows rows of x and y.
struct Tokens {
  const char* x[kMaxRows];
  const float* scale[kMaxRows];
  char* y[kMaxRows];
  bool y_bf16;
};

struct Columns {
  int64_t full;  // whole chunks
  int64_t tail;  // columns in the last, partial one
};

Tokens tokens_of(const PreparedRows& x, const Segment& s, int64_t first, int count, DType y) {
  Tokens t{};
  for (int i = 0; i < count; ++i) {
    int64_t row = s.x_row(first + i);
    t.x[i] = x.row(row);
    t.scale[i] = x.scale(row);
    t.y[i] = s.y + (first + i) * s.y_stride;
  }
  t.y_bf16 = y == DType::kBF16;
  return t;
}

HADAL_TARGET_BEGIN(HADAL_TARGET_AVX512)

// The two ways to multiply a chunk.
struct Bf16Dot {
  static constexpr int64_t kChunkBytes = 256;
  static Words operand(const Words& w) { return w; }
  static __m512 dot(const Words& w, const char* x) {
    auto at = [&](int i) { return (__m512bh)_mm512_load_si512(x + 64 * i); };
    __m512 p = _mm512_dpbf16_ps(_mm512_setzero_ps(), (__m512bh)w.v0, at(0));
    p = _mm512_dpbf16_ps(p, (__m512bh)w.v1, at(1));
    p = _mm512_dpbf16_ps(p, (__m512bh)w.v2, at(2));
    return _mm512_dpbf16_ps(p, (__m512bh)w.v3, at(3));
  }
};

struct FloatDot {
  static constexpr int64_t kChunkBytes = 512;
  template <class W>
  static Floats operand(const W& w) {
    return to_floats(w);
  }
  static __m512 dot(const Floats& w, const char* x) {
    const auto* f = reinterpret_cast<const float*>(x);
    __m512 p = _mm512_mul_ps(w.v0, _mm512_load_ps(f));
    p = _mm512_fmadd_ps(w.v1, _mm512_load_ps(f + 16), p);
    p = _mm512_fmadd_ps(w.v2, _mm512_load_ps(f + 32), p);
    p = _mm512_fmadd_ps(w.v3, _mm512_load_ps(f + 48), p);
    p = _mm512_fmadd_ps(w.v4, _mm512_load_ps(f + 64), p);
    p = _mm512_fmadd_ps(w.v5, _mm512_load_ps(f + 80), p);
    p = _mm512_fmadd_ps(w.v6, _mm512_load_ps(f + 96), p);
    return _mm512_fmadd_ps(w.v7, _mm512_load_ps(f + 112), p);
  }
};

// Far enough ahead of the loads to hide DRAM, near enough to stay in L1.
constexpr int64_t kAhead = 2048;

template <class Source, class Row>
[[gnu::always_inline]] inline void prefetch_ahead(const Row& row, int64_t c) {
  if constexpr (requires { Source::kBytes; })
    prefetch_bytes<Source::kBytes>(row.data + c * Source::kBytes + kAhead, true);
}

// sum[m] += the chunk times row m of x.
template <class Dot, int M, class Operand>
inline void add_chunk(const Operand& w, __m512 scale, int64_t c, const Tokens& t, __m512* sum) {
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
    __m512 p = Dot::dot(w, t.x[m] + c * Dot::kChunkBytes);
    sum[m] = _mm512_fmadd_ps(p, _mm512_mul_ps(scale, _mm512_set1_ps(t.scale[m][c])), sum[m]);
  }
}

// Rows [begin, end) of W, M rows of x: the whole K.
template <class Dot, int M, class Source>
void multiply_rows(const Source& w, int64_t begin, int64_t end, const Columns& columns,
                   const Tokens& t) {
  for (int64_t n = begin; n < end; ++n) {
    auto row = w.row(n);
    __m512 sum[M];
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) sum[m] = _mm512_setzero_ps();
    int64_t c = 0;
    for (; c < columns.full; ++c) {
      prefetch_ahead<Source>(row, c);
      add_chunk<Dot, M>(Dot::operand(w.load(row, c)), w.scale(row, c), c, t, sum);
    }
    if (columns.tail)
      add_chunk<Dot, M>(Dot::operand(w.load_tail(row, c, columns.tail)),
                        w.scale_tail(row, c, columns.tail), c, t, sum);
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      float value = _mm512_reduce_add_ps(sum[m]);
      if (t.y_bf16)
        reinterpret_cast<BF16*>(t.y[m])[n] = f32_to_bf16(value);
      else
        reinterpret_cast<float*>(t.y[m])[n] = value;
    }
  }
}

template <class Dot, class Source>
void multiply_tokens(const Source& w, int64_t begin, int64_t end, const Columns& columns,
                     const Tokens& t, int count) {
  switch (count) {
    case 1:
      return multiply_rows<Dot, 1>(w, begin, end, columns, t);
    case 2:
      return multiply_rows<Dot, 2>(w, begin, end, columns, t);
    case 3:
      return multiply_rows<Dot, 3>(w, begin, end, columns, t);
    case 4:
      return multiply_rows<Dot, 4>(w, begin, end, columns, t);
    case 5:
      return multiply_rows<Dot, 5>(w, begin, end, columns, t);
    case 6:
      return multiply_rows<Dot, 6>(w, begin, end, columns, t);
    case 7:
      return multiply_rows<Dot, 7>(w, begin, end, columns, t);
    default:
      return multiply_rows<Dot, 8>(w, begin, end, columns, t);
  }
}

// Rows of W that were decoded into memory: operand and scale of each chunk.
template <class Operand>
struct Panel {
  struct Cell {
    Operand operand;
    __m512 scale;
  };
  using Row = const Cell*;

  Row row(int64_t n) const { return cells + (n - first) * chunks; }
  const Operand& load(Row r, int64_t c) const { return r[c].operand; }
  const Operand& load_tail(Row r, int64_t c, int64_t) const { return r[c].operand; }
  __m512 scale(Row r, int64_t c) const { return r[c].scale; }
  __m512 scale_tail(Row r, int64_t c, int64_t) const { return r[c].scale; }

  Cell* cells;
  int64_t first, chunks;
};

template <class Dot, class Source>
auto decode_panel(const Source& w, int64_t begin, int64_t end, const Columns& columns,
                  Scratch& memory) {
  using Operand = decltype(Dot::operand(w.load(w.row(0), 0)));
  using Cell = typename Panel<Operand>::Cell;
  int64_t chunks = columns.full + (columns.tail > 0);
  Panel<Operand> panel{static_cast<Cell*>(memory.grow((end - begin) * chunks * sizeof(Cell))),
                       begin, chunks};
  Cell* cell = panel.cells;
  for (int64_t n = begin; n < end; ++n) {
    auto row = w.row(n);
    for (int64_t c = 0; c < columns.full; ++c, ++cell)
      *cell = {Dot::operand(w.load(row, c)), w.scale(row, c)};
    if (columns.tail) {
      *cell++ = {Dot::operand(w.load_tail(row, columns.full, columns.tail)),
                 w.scale_tail(row, columns.full, columns.tail)};
    }
  }
  return panel;
}

// Rows [begin, end) of W times all rows of the segment.
template <class Source, class Dot>
void multiply_segment(const Product& p, const PreparedRows& x, const Segment& s, int64_t begin,
                      int64_t end) {
  thread_local Scratch scale_memory, panel_memory;
  Columns columns{p.k / kChunk, p.k % kChunk};
  Source source(*s.w, begin, end, scale_memory);
  for (int64_t n = begin; n < end; n += kPanelRows) {
    int64_t last = std::min(end, n + kPanelRows);
    if (s.count <= kDirectRows) {
      int64_t passes = (s.count + kMaxRows - 1) / kMaxRows;
      for (int64_t i = 0; i < passes; ++i) {
        int64_t first = s.count * i / passes;
        int count = static_cast<int>(s.count * (i + 1) / passes - first);
        Tokens t = tokens_of(x, s, first, count, p.y.dtype);
        multiply_tokens<Dot>(source, n, last, columns, t, count);
      }
      continue;
    }
    auto panel = decode_panel<Dot>(source, n, last, columns, panel_memory);
    for (int64_t first = 0; first < s.count; first += kMaxRows) {
      int count = static_cast<int>(std::min<int64_t>(kMaxRows, s.count - first));
      Tokens t = tokens_of(x, s, first, count, p.y.dtype);
      multiply_tokens<Dot>(panel, n, last, columns, t, count);
    }
  }
}

HADAL_TARGET_END

using SegmentFn = void(const Product&, const PreparedRows&, const Segment&, int64_t, int64_t);

SegmentFn* segment_kernel(const Product& p) {
  bool floats = needs_floats(p);
  switch (p.w_dtype) {
    case DType::kF32:
      return multiply_segment<F32Source, FloatDot>;
    case DType::kF16:
      return multiply_segment<F16Source, FloatDot>;
    case DType::kBF16:
      return floats ? multiply_segment<Bf16Source, FloatDot>
                    : multiply_segment<Bf16Source, Bf16Dot>;
    case DType::kF8E4M3:
      return floats ? multiply_segment<Fp8Source, FloatDot> : multiply_segment<Fp8Source, Bf16Dot>;
    default:
      return floats ? multiply_segment<Fp4Source, FloatDot> : multiply_segment<Fp4Source, Bf16Dot>;
  }
}

void multiply(Context& ctx, const Product& p) {
  PreparedRows x = prepare_rows(ctx.threads, p);
  SegmentFn* kernel = segment_kernel(p);
  for_each_row_range(ctx.threads, p, 4,
                     [&](const Segment& s, int64_t b, int64_t e, int) { kernel(p, x, s, b, e); });
}

}  // namespace

void avx512_linear(Context& ctx, const Activation& x, const Weight& w, const Tensor& y) {
  multiply(ctx, product_of(x, w, y));
}

void avx512_grouped_linear(Context& ctx, const Activation& x, const int32_t* rows,
                           const int32_t* offsets, std::span<const Weight> experts,
                           const Tensor& y) {
  multiply(ctx, product_of(x, rows, offsets, experts, y));
}

void avx512_batched_linear(Context& ctx, const Tensor& x, std::span<const Weight> w,
                           const Tensor& y) {
  multiply(ctx, product_of(x, w, y));
}

}  // namespace hadal
