// batched_linear_transposed with AVX-512: rows of W are decoded to floats and added to the outputs,
// each times its own x. One chunk of 128 columns at a time; the sums of all chunks wait in scratch
// while a block of rows passes, so that W streams from memory once and in order.
#include "kernels/cpu/avx512_activations.h"
#include "kernels/cpu/tuned_linear.h"

namespace hadal {
namespace {

constexpr int64_t kTokens = 64;     // rows of x per pass over W
constexpr int64_t kBlockRows = 32;  // rows of W between loads of the sums
constexpr int kGroup = 3;           // rows of x whose sums fit in registers

// One group's part of the work: x [M, N], y [M, K], columns of chunks [c0, c1).
struct Part {
  const Weight* w;
  Tensor x, y;
  int64_t c0, c1;
};

float x_value(const Tensor& x, int64_t m, int64_t n) {
  return x.dtype == DType::kF32 ? *x.at<const float>(m, n) : bf16_to_f32(*x.at<const BF16>(m, n));
}

HADAL_TARGET_BEGIN(HADAL_TARGET_AVX512)

struct Cell {
  Floats values;
  __m512 scale;
};

// Rows of W as they lie in memory, or decoded cells.
template <class Source>
struct Direct {
  const Source& source;
  int64_t c, tail;  // tail: columns of this chunk where it is partial, else 0
  Cell cell(int64_t n) const {
    auto row = source.row(n);
    if (tail) return {to_floats(source.load_tail(row, c, tail)), source.scale_tail(row, c, tail)};
    // The next block of rows.
    prefetch_bytes<Source::kBytes>(source.row(n + kBlockRows).data + c * Source::kBytes, true);
    return {to_floats(source.load(row, c)), source.scale(row, c)};
  }
};
struct Decoded {
  const Cell* cells;
  int64_t first;
  const Cell& cell(int64_t n) const { return cells[n - first]; }
};

// sums[m * pitch + column] += x[m, n] * W[n, column] for rows [begin, end), M rows of x from m0 on.
template <int M, class Rows>
void add_rows(const Rows& rows, int64_t begin, int64_t end, const float* x, int64_t x_pitch,
              float* sums, int64_t pitch) {
  __m512 sum[M][8];
#pragma GCC unroll 4
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) sum[m][j] = _mm512_load_ps(sums + m * pitch + 16 * j);
  for (int64_t n = begin; n < end; ++n) {
    const Cell& cell = rows.cell(n);
    const Floats& v = cell.values;
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) {
      __m512 a = _mm512_mul_ps(cell.scale, _mm512_set1_ps(x[m * x_pitch + n]));
      sum[m][0] = _mm512_fmadd_ps(a, v.v0, sum[m][0]);
      sum[m][1] = _mm512_fmadd_ps(a, v.v1, sum[m][1]);
      sum[m][2] = _mm512_fmadd_ps(a, v.v2, sum[m][2]);
      sum[m][3] = _mm512_fmadd_ps(a, v.v3, sum[m][3]);
      sum[m][4] = _mm512_fmadd_ps(a, v.v4, sum[m][4]);
      sum[m][5] = _mm512_fmadd_ps(a, v.v5, sum[m][5]);
      sum[m][6] = _mm512_fmadd_ps(a, v.v6, sum[m][6]);
      sum[m][7] = _mm512_fmadd_ps(a, v.v7, sum[m][7]);
    }
  }
#pragma GCC unroll 4
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) _mm512_store_ps(sums + m * pitch + 16 * j, sum[m][j]);
}

template <class Rows>
void add_tokens(const Rows& rows, int64_t begin, int64_t end, const float* x, int64_t x_pitch,
                float* sums, int64_t pitch, int64_t count) {
  if (count == 1) return add_rows<1>(rows, begin, end, x, x_pitch, sums, pitch);
  if (count == 2) return add_rows<2>(rows, begin, end, x, x_pitch, sums, pitch);
  add_rows<3>(rows, begin, end, x, x_pitch, sums, pitch);
}

// Adds rows [begin, end) of one chunk to the sums of `count` rows of x.
template <class Source>
void add_block(const Source& source, const Part& p, int64_t c, int64_t begin, int64_t end,
               const float* x, float* sums, int64_t pitch, int64_t count) {
  int64_t left = p.w->k() - c * kChunk, n = p.w->n();
  Direct<Source> direct{source, c, left < kChunk ? left : 0};
  if (count <= kGroup) return add_tokens(direct, begin, end, x, n, sums, pitch, count);
  Cell cells[kBlockRows];
  for (int64_t i = begin; i < end; ++i) cells[i - begin] = direct.cell(i);
  Decoded decoded{cells, begin};
  for (int64_t m = 0; m < count; m += kGroup)
    add_tokens(decoded, begin, end, x + m * n, n, sums + m * pitch, pitch,
               std::min<int64_t>(kGroup, count - m));
}

template <class Source>
void multiply_part(const Part& p) {
  thread_local Scratch scale_memory, sum_memory, x_memory;
  int64_t rows = p.x.shape[0], n = p.w->n(), pitch = (p.c1 - p.c0) * kChunk;
  Source source(*p.w, 0, n, scale_memory);
  auto* sums = static_cast<float*>(sum_memory.grow(std::min(rows, kTokens) * pitch * 4));
  auto* x = static_cast<float*>(x_memory.grow(std::min(rows, kTokens) * n * 4));
  for (int64_t m0 = 0; m0 < rows; m0 += kTokens) {
    int64_t count = std::min(kTokens, rows - m0);
    std::fill_n(sums, count * pitch, 0.0f);
    for (int64_t m = 0; m < count; ++m)
      for (int64_t i = 0; i < n; ++i) x[m * n + i] = x_value(p.x, m0 + m, i);
    for (int64_t begin = 0; begin < n; begin += kBlockRows)
      for (int64_t c = p.c0; c < p.c1; ++c)
        add_block(source, p, c, begin, std::min(n, begin + kBlockRows), x,
                  sums + (c - p.c0) * kChunk, pitch, count);
    for (int64_t m = 0; m < count; ++m)
      write_in_order(sums + m * pitch, float_positions(p.w->data.dtype), p.y, m0 + m, p.c0 * kChunk,
                     std::min(p.c1 * kChunk, p.w->k()));
  }
}

HADAL_TARGET_END

using PartFn = void(const Part&);

PartFn* part_kernel(DType weight) {
  switch (weight) {
    case DType::kF32:
      return multiply_part<F32Source>;
    case DType::kF16:
      return multiply_part<F16Source>;
    case DType::kBF16:
      return multiply_part<Bf16Source>;
    case DType::kF8E4M3:
      return multiply_part<Fp8Source>;
    default:
      return multiply_part<Fp4Source>;
  }
}

}  // namespace

void avx512_batched_linear_transposed(Context& ctx, const Tensor& x, std::span<const Weight> w,
                                      const Tensor& y) {
  int64_t groups = x.shape[1], chunks = (w[0].k() + kChunk - 1) / kChunk;
  PartFn* kernel = part_kernel(w[0].data.dtype);
  ctx.threads.run(groups * chunks, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t g = begin / chunks; g * chunks < end; ++g)
      kernel({&w[g], group_of(x, g), group_of(y, g), std::max(begin - g * chunks, int64_t{0}),
              std::min(end - g * chunks, chunks)});
  });
}

}  // namespace hadal
