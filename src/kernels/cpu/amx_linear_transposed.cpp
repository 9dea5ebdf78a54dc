// batched_linear_transposed of many rows with AMX: rows of x are the left tiles as they come, and
// two rows of W at a time, decoded to bf16 and interleaved, make a row of eight right tiles: 128
// columns. Scales of W are folded where they are powers of two; else each run of rows with one
// scale is summed in tiles, scaled and added in fp32.
// What tiles cannot do exactly (f32 x or W, f16 W) and few rows go to the AVX-512 kernel.
#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/avx512_activations.h"
#include "kernels/cpu/tuned_linear.h"

namespace hadal {
namespace {

constexpr int64_t kStepRows = 32;    // rows of W that one tile product sums over
constexpr int64_t kTokenTiles = 16;  // tiles of x per pass over W: 256 rows

// One group's part of the work: x [M, N], y [M, K], columns of chunks [c0, c1).
struct Part {
  const Weight* w;
  Tensor x, y;
  int64_t c0, c1;
};

// Rows [begin, end) of W, at most kStepRows and all with one scale; `last` of those that have it.
struct Step {
  int64_t begin, end;
  bool last;
};

// W cut in steps; a run ends where the FP8 scale changes, unless scales are folded.
void make_steps(const Weight& w, bool fold, std::vector<Step>& steps) {
  steps.clear();
  for (int64_t n = 0; n < w.n();) {
    int64_t run_end = fold ? w.n() : std::min(w.n(), n + kFp8Block - (w.row0 + n) % kFp8Block);
    for (; n < run_end; n += kStepRows)
      steps.push_back({n, std::min(run_end, n + kStepRows), n + kStepRows >= run_end});
    n = run_end;
  }
}

HADAL_TARGET_BEGIN(HADAL_TARGET_AMX)

// Tiles of x: [m tiles, steps, 16 rows of x, 32 rows of W] bf16, zeros where there is none.
void pack_x(const Part& p, std::span<const Step> steps, int64_t m0, int64_t tiles, char* out) {
  for (int64_t t = 0; t < tiles; ++t)
    for (const Step& s : steps)
      for (int64_t i = 0; i < 16; ++i, out += 64) {
        int64_t m = m0 + t * 16 + i;
        bool exists = m < p.x.shape[0];
        _mm512_store_si512(
            out, exists ? load_first(p.x.at<const BF16>(m, s.begin), 2 * (s.end - s.begin))
                        : _mm512_setzero_si512());
      }
}

template <bool kFold, class Source>
Words decode_row(Source& source, int64_t n, int64_t c, int64_t columns) {
  auto row = source.row(n);
  if constexpr (kFold)
    return columns < kChunk ? source.load_folded_tail(row, c, columns) : source.load_folded(row, c);
  else
    return columns < kChunk ? source.load_tail(row, c, columns) : source.load(row, c);
}

// Chunk c of W as tiles: [steps, 8, 16 pairs of rows, 16 columns, 2] bf16.
template <bool kFold, class Source>
void decode_chunk(Source& source, std::span<const Step> steps, int64_t c, int64_t k, char* out) {
  int64_t columns = std::min(kChunk, k - c * kChunk);
  for (const Step& s : steps) {
    for (int64_t i = 0; i < 16; ++i) {
      int64_t n = s.begin + 2 * i;
      Words a{}, b{};
      if (n < s.end) a = decode_row<kFold>(source, n, c, columns);
      if (n + 1 < s.end) b = decode_row<kFold>(source, n + 1, c, columns);
      const __m512i even[4] = {a.v0, a.v1, a.v2, a.v3}, odd[4] = {b.v0, b.v1, b.v2, b.v3};
      for (int j = 0; j < 4; ++j) {
        char* at = out + 2 * j * kTile + 64 * i;
        _mm512_store_si512(at, _mm512_unpacklo_epi16(even[j], odd[j]));
        _mm512_store_si512(at + kTile, _mm512_unpackhi_epi16(even[j], odd[j]));
      }
    }
    out += 8 * kTile;
  }
}

// Tiles 0..3 += two tiles of rows of x times two tiles of columns of W over steps [begin, end).
inline void multiply_steps(const char* x0, const char* x1, const char* w, int64_t begin,
                           int64_t end) {
  for (int64_t s = begin; s < end; ++s) {
    _tile_loadd(4, x0 + s * kTile, 64);
    _tile_loadd(6, w + s * 8 * kTile, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, x1 + s * kTile, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_loadd(7, w + s * 8 * kTile + kTile, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
  }
}

// sums [16, kChunk] of two m tiles, 32 columns from `sums` on, += partial * scale.
inline void add_partial(const float* partial, float scale, bool first, float* sums0, float* sums1) {
  __m512 s = _mm512_set1_ps(scale);
  for (int j = 0; j < 4; ++j)
    for (int i = 0; i < 16; ++i) {
      float* at = (j < 2 ? sums0 : sums1) + i * kChunk + j % 2 * 16;
      __m512 sum = first ? _mm512_setzero_ps() : _mm512_load_ps(at);
      _mm512_store_ps(at, _mm512_fmadd_ps(_mm512_load_ps(partial + 256 * j + 16 * i), s, sum));
    }
}

// A thread's memory.
struct Workspace {
  char* x;         // [m tiles, steps, kTile]
  char* w;         // [steps, 8, kTile]
  float* partial;  // 4 tiles
  float* sums;     // [m tiles, 16, kChunk]
};

// One chunk: all m tiles (an even number).
template <class Scale>
void multiply_chunk(const Workspace& ws, std::span<const Step> steps, int64_t tiles,
                    const Scale& scale) {
  auto count = static_cast<int64_t>(steps.size());
  for (int64_t m = 0; m < tiles; m += 2)
    for (int64_t t = 0; t < 8; t += 2) {
      float* sums = ws.sums + m * 16 * kChunk + t * 16;
      for (int64_t begin = 0, end; begin < count; begin = end) {
        end = begin + 1;
        while (!steps[end - 1].last) ++end;
        zero_tiles();
        multiply_steps(ws.x + m * count * kTile, ws.x + (m + 1) * count * kTile, ws.w + t * kTile,
                       begin, end);
        store_tiles(ws.partial);
        before_tile_loads();
        add_partial(ws.partial, scale(steps[begin].begin), begin == 0, sums, sums + 16 * kChunk);
        before_tile_loads();
      }
    }
}

template <class Source, bool kFold>
void multiply_part(const Part& p) {
  thread_local Scratch scale_memory, x_memory, w_memory, sum_memory;
  thread_local std::vector<Step> steps;
  make_steps(*p.w, kFold, steps);
  int64_t rows = p.x.shape[0], k = p.w->k(), count = static_cast<int64_t>(steps.size());
  Source source(*p.w, 0, p.w->n(), scale_memory);
  Workspace ws;
  ws.x = static_cast<char*>(x_memory.grow(kTokenTiles * count * kTile));
  ws.w = static_cast<char*>(w_memory.grow(count * 8 * kTile));
  ws.partial = static_cast<float*>(sum_memory.grow((4 + kTokenTiles * 8) * kTile));
  ws.sums = ws.partial + 4 * 256;
  TileScope tiles_ready;
  for (int64_t m0 = 0; m0 < rows; m0 += kTokenTiles * 16) {
    int64_t left = std::min(kTokenTiles * 16, rows - m0), tiles = (left + 31) / 32 * 2;
    pack_x(p, steps, m0, tiles, ws.x);
    for (int64_t c = p.c0; c < p.c1; ++c) {
      decode_chunk<kFold>(source, steps, c, k, ws.w);
      before_tile_loads();
      multiply_chunk(ws, steps, tiles, [&](int64_t n) {
        if constexpr (kFold)
          return 1.0f;
        else
          return source.row(n).scale[c];
      });
      for (int64_t m = 0; m < left; ++m)
        write_in_order(ws.sums + m * kChunk, pair_positions(p.w->data.dtype), p.y, m0 + m,
                       c * kChunk, std::min(k, (c + 1) * kChunk));
    }
  }
}

HADAL_TARGET_END

using PartFn = void(const Part&);

PartFn* part_kernel(const Weight& w) {
  if (w.fp8())
    return power_of_two_scales(w) ? multiply_part<Fp8Source, true>
                                  : multiply_part<Fp8Source, false>;
  return w.fp4() ? multiply_part<Fp4Source, true> : multiply_part<Bf16Source, true>;
}

}  // namespace

void amx_batched_linear_transposed(Context& ctx, const Tensor& x, std::span<const Weight> w,
                                   const Tensor& y) {
  DType t = w[0].data.dtype;
  if (x.shape[0] <= kFewRows || x.dtype == DType::kF32 || t == DType::kF32 || t == DType::kF16)
    return avx512_batched_linear_transposed(ctx, x, w, y);
  int64_t groups = x.shape[1], chunks = (w[0].k() + kChunk - 1) / kChunk;
  ctx.threads.run(groups * chunks, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t g = begin / chunks; g * chunks < end; ++g)
      part_kernel(w[g])({&w[g], group_of(x, g), group_of(y, g),
                         std::max(begin - g * chunks, int64_t{0}),
                         std::min(end - g * chunks, chunks)});
  });
}

}  // namespace hadal
