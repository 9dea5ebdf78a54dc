// Matrix products of many rows with AMX: y^T = W x^T, so that rows of W, decoded to bf16 in a panel
// that stays in L1, are the left tiles as they come, and x is packed once per call as right tiles.
// Where every scale is a power of two it is folded into the bf16 operands, which is exact, and sums
// stay in tiles; else each 128-column block is summed in tiles, scaled and added in fp32. Which of
// the two a row of x takes depends on its own scales (and on W), never on its neighbours'.
// Products that need floats (f32 x or W, f16 W) go to the AVX-512 kernels.
#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/avx512_activations.h"
#include "kernels/cpu/tuned_linear.h"

namespace hadal {
namespace {

constexpr int64_t kPanelRows = 64;                 // rows of W decoded at a time
constexpr int64_t kBlockRows = 256;                // rows of W whose sums stay in L2
constexpr int64_t kPanelChunks = 2;                // of 128 columns: with x, the panel fits in L1
constexpr int64_t kPanelSteps = 4 * kPanelChunks;  // of 32 columns
constexpr int64_t kMaxTiles = 32;                  // tiles of x per pass over W: 512 rows

// Rows of one segment that share a weight and the way of scaling, packed.
struct Batch {
  Segment segment;
  const int32_t* order;  // [count] rows of the segment
  int64_t count;
  bool fold_w;  // the scales of W are powers of two, to be folded
  bool flush;   // scale each block of x or W, rather than fold
  int64_t tiles, chunks;
  char* packed;        // [tiles, chunks, 4, kTile]
  float* scales;       // [tiles, chunks, 16]
  int64_t first_tile;  // of all tiles of the call

  const char* tile(int64_t t) const { return packed + t * chunks * 4 * kTile; }
  const float* scale(int64_t t) const { return scales + t * chunks * 16; }
};

bool foldable_row(const Product& p, int64_t r) {
  const float* s = p.x_scale(r);
  return !s || std::all_of(s, s + (p.k + kChunk - 1) / kChunk, is_power_of_two);
}

// The segments' rows as batches; memory of the calling thread.
std::span<Batch> make_batches(const Product& p) {
  thread_local std::vector<Batch> batches;
  thread_local std::vector<int32_t> order;
  thread_local Scratch packed_memory, scale_memory;
  batches.clear();
  int64_t chunks = (p.k + kChunk - 1) / kChunk, rows = 0, tiles = 0;
  for (int64_t s = 0; s < p.segments(); ++s) rows += p.segment(s).count;
  order.resize(rows);
  int32_t* next = order.data();
  for (int64_t s = 0; s < p.segments(); ++s) {
    Segment segment = p.segment(s);
    if (segment.count == 0) continue;
    bool fold = power_of_two_scales(*segment.w);
    for (bool flush : {false, true}) {
      Batch b{segment, next, 0, fold, flush, 0, chunks, nullptr, nullptr, tiles};
      for (int32_t i = 0; i < segment.count; ++i)
        if (flush != (fold && foldable_row(p, segment.x_row(i)))) *next++ = i;
      b.count = next - b.order;
      b.tiles = (b.count + 15) / 16;
      tiles += b.tiles;
      if (b.count > 0) batches.push_back(b);
    }
  }
  auto* packed = static_cast<char*>(packed_memory.grow(tiles * chunks * 4 * kTile));
  auto* scales = static_cast<float*>(scale_memory.grow(tiles * chunks * 64));
  for (Batch& b : batches) {
    b.packed = packed + b.first_tile * chunks * 4 * kTile;
    b.scales = scales + b.first_tile * chunks * 16;
  }
  return batches;
}

void pack_batches(ThreadPool& threads, const Product& p, std::span<Batch> batches) {
  int64_t tiles = batches.back().first_tile + batches.back().tiles;
  threads.run(tiles, 1, [&](int64_t begin, int64_t end, int) {
    for (const Batch& b : batches) {
      int64_t first = std::max(begin - b.first_tile, int64_t{0});
      for (int64_t t = first; t < b.tiles && b.first_tile + t < end; ++t) {
        int32_t rows[16];
        int count = static_cast<int>(std::min<int64_t>(16, b.count - t * 16));
        for (int i = 0; i < count; ++i)
          rows[i] = static_cast<int32_t>(b.segment.x_row(b.order[t * 16 + i]));
        pack_tile(p, rows, count, !b.flush, b.packed + t * b.chunks * 4 * kTile,
                  b.scales + t * b.chunks * 16);
      }
    }
  });
}

// A thread's memory.
//   panel       [4, kPanelSteps, kTile]: 64 decoded rows of W as 4 x kPanelSteps tiles
//   row_scales  [kPanelChunks, kPanelRows]: what the panel's values are still to be multiplied with
//   partial     the four tiles of a piece
//   sums        [panels of a block, pieces, 4, 16, 16] fp32
struct Workspace {
  char* panel;
  float* partial;
  float* row_scales;
  float* sums;
};

// Rows [begin, end) of W (a block: as many panels as `sums` holds) times tiles [m0, m0 + tiles).
struct Block {
  int64_t begin, end, m0, tiles;
};

// The panel that is decoded: rows from n on, chunks [c, c + chunks).
struct PanelAt {
  int64_t n, c, chunks;
  bool last;  // ends with the last chunk of W
};

// A piece is what the four sum tiles hold at once: 32 rows of W x 32 rows of x (wide), tile 2 i + j
// being rows i of W and j of x, or 64 rows of W x 16 rows of x.
struct Piece {
  int64_t n, m;  // first n tile in the panel, first m tile in the block
  bool wide;
};

HADAL_TARGET_BEGIN(HADAL_TARGET_AMX)

// Tiles 0..3 += panel tiles (0, 1) x tiles of x (m, m + 1), `steps` of 32 columns.
inline void multiply_2x2(const char* a, const char* b0, const char* b1, int64_t steps) {
  const char* a1 = a + kPanelSteps * kTile;
  for (int64_t i = 0; i < steps; ++i, a += kTile, a1 += kTile, b0 += kTile, b1 += kTile) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b0, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, a1, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_loadd(7, b1, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
  }
}

// Tiles 0..3 += panel tiles (0, 1, 2, 3) x one tile of x.
inline void multiply_4x1(const char* a, const char* b, int64_t steps) {
  constexpr int64_t kNext = kPanelSteps * kTile;
  for (int64_t i = 0; i < steps; ++i, a += kTile, b += kTile) {
    _tile_loadd(6, b, 64);
    _tile_loadd(4, a, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, a + kNext, 64);
    _tile_dpbf16ps(1, 5, 6);
    _tile_loadd(4, a + 2 * kNext, 64);
    _tile_dpbf16ps(2, 4, 6);
    _tile_loadd(5, a + 3 * kNext, 64);
    _tile_dpbf16ps(3, 5, 6);
  }
}

// sums += partial * (scale of x * scale of w): a tile of 16 rows of W by 16 rows of x.
inline void add_scaled(const float* partial, const float* w_scales, __m512 x_scales, bool first,
                       float* sums) {
#pragma GCC unroll 4
  for (int i = 0; i < 16; ++i) {
    __m512 s = _mm512_mul_ps(x_scales, _mm512_set1_ps(w_scales[i]));
    __m512 sum = first ? _mm512_setzero_ps() : _mm512_load_ps(sums + 16 * i);
    _mm512_store_ps(sums + 16 * i, _mm512_fmadd_ps(_mm512_load_ps(partial + 16 * i), s, sum));
  }
}

// Tiles 0..3 += the panel's chunks from i on, `steps` of 32 columns, x the piece's rows of x.
inline void multiply(const Workspace& ws, const Batch& b, const Piece& piece, int64_t tile,
                     int64_t c, int64_t i, int64_t steps) {
  const char* a = ws.panel + (piece.n * kPanelSteps + 4 * i) * kTile;
  const char* x = b.tile(tile) + (c + i) * 4 * kTile;
  if (piece.wide)
    multiply_2x2(a, x, x + b.chunks * 4 * kTile, steps);
  else
    multiply_4x1(a, x, steps);
}

// Adds the panel to the sums of a piece, folded scales. Returns where the new sums are.
const float* add_folded(const Workspace& ws, const Batch& b, const Block& block, const PanelAt& at,
                        const Piece& piece, float* sums) {
  if (at.c == 0) {
    zero_tiles();
  } else {
    load_tiles(sums);
    // The next piece's sums lie behind these.
    if (!at.last) prefetch_bytes<4 * kTile>(reinterpret_cast<uint8_t*>(sums + 1024), true);
  }
  multiply(ws, b, piece, block.m0 + piece.m, at.c, 0, 4 * at.chunks);
  float* out = at.last ? ws.partial : sums;
  store_tiles(out);
  before_tile_loads();
  return out;
}

// The same with scales applied to each chunk.
const float* add_flushed(const Workspace& ws, const Batch& b, const Block& block, const PanelAt& at,
                         const Piece& piece, float* sums) {
  for (int64_t i = 0; i < at.chunks; ++i) {
    zero_tiles();
    multiply(ws, b, piece, block.m0 + piece.m, at.c, i, 4);
    store_tiles(ws.partial);
    before_tile_loads();
    for (int j = 0; j < 4; ++j) {
      int64_t n = piece.n + (piece.wide ? j / 2 : j), m = piece.m + (piece.wide ? j % 2 : 0);
      __m512 x_scales = _mm512_loadu_ps(b.scale(block.m0 + m) + (at.c + i) * 16);
      add_scaled(ws.partial + 256 * j, ws.row_scales + i * kPanelRows + n * 16, x_scales,
                 at.c + i == 0, sums + 256 * j);
    }
    before_tile_loads();
  }
  return sums;
}

// Writes two sum tiles, rows n .. n + 31 of W (those below `end`) x tile m of the batch, to y.
void write_tiles(const Product& p, const Batch& b, const float* tile0, const float* tile1,
                 int64_t n, int64_t end, int64_t m) {
  __m512 rows0[16], rows1[16];
  __m512i in[16];
  for (int i = 0; i < 16; ++i) in[i] = _mm512_load_si512(tile0 + 16 * i);
  store_transposed(in, rows0);
  for (int i = 0; i < 16; ++i) in[i] = _mm512_load_si512(tile1 + 16 * i);
  store_transposed(in, rows1);
  auto mask = static_cast<uint32_t>(first_bytes(std::min<int64_t>(32, end - n)));
  auto mask0 = static_cast<__mmask16>(mask), mask1 = static_cast<__mmask16>(mask >> 16);
  int64_t count = std::min<int64_t>(16, b.count - m * 16);
  for (int64_t i = 0; i < count; ++i) {
    char* y = b.segment.y + b.order[m * 16 + i] * b.segment.y_stride;
    if (p.y.dtype == DType::kF32) {
      auto* out = reinterpret_cast<float*>(y) + n;
      _mm512_mask_storeu_ps(out, mask0, rows0[i]);
      _mm512_mask_storeu_ps(out + 16, mask1, rows1[i]);
    } else {
      __m512i both = _mm512_castsi256_si512(round_to_bf16(rows0[i]));
      both = _mm512_inserti64x4(both, round_to_bf16(rows1[i]), 1);
      _mm512_mask_storeu_epi16(reinterpret_cast<BF16*>(y) + n, mask, both);
    }
  }
}

void add_piece(const Product& p, const Workspace& ws, const Batch& b, const Block& block,
               const PanelAt& at, const Piece& piece, float* sums) {
  const float* out = (b.flush ? add_flushed : add_folded)(ws, b, block, at, piece, sums);
  if (!at.last) return;
  int64_t n = at.n + piece.n * 16, m = block.m0 + piece.m;
  if (piece.wide) {
    write_tiles(p, b, out, out + 512, n, block.end, m);
    write_tiles(p, b, out + 256, out + 768, n, block.end, m + 1);
  } else {
    write_tiles(p, b, out, out + 256, n, block.end, m);
    if (n + 32 < block.end) write_tiles(p, b, out + 512, out + 768, n + 32, block.end, m);
  }
}

// Rows [begin, end) of W, and the last one again up to `count`: what it gives is never written.
template <class Source>
void list_rows(const Source& source, int64_t begin, int64_t end, int64_t count,
               typename Source::Row* rows) {
  for (int64_t i = 0; i < count; ++i) rows[i] = source.row(std::min(begin + i, end - 1));
}

inline void store_words(char* out, const Words& w) {
  _mm512_store_si512(out, w.v0);
  _mm512_store_si512(out + kTile, w.v1);
  _mm512_store_si512(out + 2 * kTile, w.v2);
  _mm512_store_si512(out + 3 * kTile, w.v3);
}

// Decodes chunk c of a row, a whole one, to 4 tiles' rows from `out` on. Where scales cannot be
// folded, `scale` gets what the values are still to be multiplied with.
template <bool kFold, class Source>
[[gnu::always_inline]] inline void decode_row(Source& source, const typename Source::Row& row,
                                              int64_t c, char* out, float& scale) {
  if constexpr (kFold) {
    store_words(out, source.load_folded(row, c));
  } else {
    store_words(out, source.load(row, c));
    scale = row.scale[c];
  }
}

// The same for the last chunk where it is partial.
template <bool kFold, class Source>
[[gnu::noinline]] void decode_row_tail(Source& source, const typename Source::Row& row, int64_t c,
                                       int64_t columns, char* out, float& scale) {
  if constexpr (kFold) {
    store_words(out, source.load_folded_tail(row, c, columns));
  } else {
    store_words(out, source.load_tail(row, c, columns));
    scale = row.scale[c];
  }
}

// Decodes the panel from its 64 rows.
template <bool kFold, class Source>
void decode_panel(Source& source, const typename Source::Row* rows, const Workspace& ws,
                  const PanelAt& at, int64_t k) {
  for (int64_t i = 0; i < at.chunks; ++i) {
    int64_t c = at.c + i, columns = k - c * kChunk;
    for (int64_t n = 0; n < kPanelRows; ++n) {
      char* out = ws.panel + (n / 16 * kPanelSteps + 4 * i) * kTile + n % 16 * 64;
      float& scale = ws.row_scales[i * kPanelRows + n];
      if (columns < kChunk) {
        decode_row_tail<kFold>(source, rows[n], c, columns, out, scale);
      } else {
        prefetch_bytes<Source::kBytes>(rows[n].data + (c + kPanelChunks) * Source::kBytes, false);
        decode_row<kFold>(source, rows[n], c, out, scale);
      }
    }
  }
}

// One or two tiles of x: decoding W takes longer than multiplying, so the next chunk is decoded
// between the tile instructions of this one, and the sums of 64 x 16 or 32 x 32 stay in tiles.
// The panel holds two chunks: [2, n tiles, 4, kTile].
template <class Source, bool kFold, bool kWide>
class Stream {
 public:
  static constexpr int64_t kRows = kWide ? 32 : 64;

  Stream(const Product& p, const Batch& b, Source& source, const Workspace& ws)
      : p_(p), b_(b), source_(source), ws_(ws) {}

  void run(int64_t begin, int64_t end) {
    list_rows(source_, begin, end, kRows, rows_);
    ahead_ = source_.row(end).data;
    int64_t full = p_.k / kChunk;
    if (full > 0)
      for (int64_t n = 0; n < kRows; ++n) decode(0, n);
    else
      decode_tail(0);
    before_tile_loads();
    zero_tiles();
    for (int64_t c = 0; c < b_.chunks; ++c) {
      if (c + 1 < full) {
        multiply<true>(c);
      } else {
        if (c + 1 < b_.chunks) decode_tail(c + 1);
        multiply<false>(c);
      }
      before_tile_loads();
      if (b_.flush) flush(c);
    }
    if (!b_.flush) store_tiles(ws_.partial);
    before_tile_loads();
    write(begin, end);
  }

 private:
  static constexpr int64_t kPerProduct = kRows / 16;  // rows decoded beside one tile product
  static constexpr int64_t kChunkBytes = kRows * 256;

  char* place(int64_t c, int64_t n) const {
    return ws_.panel + c % 2 * kChunkBytes + n / 16 * 4 * kTile + n % 16 * 64;
  }
  float& scale(int64_t c, int64_t n) const { return ws_.row_scales[c % 2 * kPanelRows + n]; }

  [[gnu::always_inline]] void decode(int64_t c, int64_t n) {
    prefetch_bytes<Source::kBytes>(ahead_, false);
    ahead_ += Source::kBytes;
    decode_row<kFold>(source_, rows_[n], c, place(c, n), scale(c, n));
  }

  void decode_tail(int64_t c) {
    for (int64_t n = 0; n < kRows; ++n)
      decode_row_tail<kFold>(source_, rows_[n], c, p_.k - c * kChunk, place(c, n), scale(c, n));
  }

  // The share of the next chunk's rows that goes with one tile product of this one.
  template <bool kDecode>
  [[gnu::always_inline]] void decode_share(int64_t c, int64_t product) {
    if constexpr (kDecode)
      for (int64_t i = 0; i < kPerProduct; ++i) decode(c, product * kPerProduct + i);
  }

  template <bool kDecode>
  void multiply(int64_t c) {
    if constexpr (kWide)
      multiply_wide<kDecode>(c);
    else
      multiply_narrow<kDecode>(c);
  }

  template <bool kDecode>
  void multiply_narrow(int64_t c) {
    const char* a = ws_.panel + c % 2 * kChunkBytes;
    const char* x = b_.tile(0) + c * 4 * kTile;
    for (int64_t i = 0; i < 4; ++i, a += kTile, x += kTile) {
      _tile_loadd(6, x, 64);
      _tile_loadd(4, a, 64);
      _tile_dpbf16ps(0, 4, 6);
      decode_share<kDecode>(c + 1, 4 * i);
      _tile_loadd(5, a + 4 * kTile, 64);
      _tile_dpbf16ps(1, 5, 6);
      decode_share<kDecode>(c + 1, 4 * i + 1);
      _tile_loadd(4, a + 8 * kTile, 64);
      _tile_dpbf16ps(2, 4, 6);
      decode_share<kDecode>(c + 1, 4 * i + 2);
      _tile_loadd(5, a + 12 * kTile, 64);
      _tile_dpbf16ps(3, 5, 6);
      decode_share<kDecode>(c + 1, 4 * i + 3);
    }
  }

  template <bool kDecode>
  void multiply_wide(int64_t c) {
    const char* a = ws_.panel + c % 2 * kChunkBytes;
    const char *x0 = b_.tile(0) + c * 4 * kTile, *x1 = b_.tile(1) + c * 4 * kTile;
    for (int64_t i = 0; i < 4; ++i, a += kTile, x0 += kTile, x1 += kTile) {
      _tile_loadd(4, a, 64);
      _tile_loadd(6, x0, 64);
      _tile_dpbf16ps(0, 4, 6);
      decode_share<kDecode>(c + 1, 4 * i);
      _tile_loadd(5, a + 4 * kTile, 64);
      _tile_dpbf16ps(2, 5, 6);
      decode_share<kDecode>(c + 1, 4 * i + 1);
      _tile_loadd(7, x1, 64);
      _tile_dpbf16ps(1, 4, 7);
      decode_share<kDecode>(c + 1, 4 * i + 2);
      _tile_dpbf16ps(3, 5, 7);
      decode_share<kDecode>(c + 1, 4 * i + 3);
    }
  }

  void flush(int64_t c) {
    store_tiles(ws_.partial);
    zero_tiles();
    before_tile_loads();
    for (int j = 0; j < 4; ++j) {
      int64_t n = kWide ? j / 2 : j, m = kWide ? j % 2 : 0;
      add_scaled(ws_.partial + 256 * j, &scale(c, n * 16), _mm512_loadu_ps(b_.scale(m) + c * 16),
                 c == 0, ws_.sums + 256 * j);
    }
  }

  void write(int64_t begin, int64_t end) {
    const float* out = b_.flush ? ws_.sums : ws_.partial;
    if (kWide) {
      write_tiles(p_, b_, out, out + 512, begin, end, 0);
      write_tiles(p_, b_, out + 256, out + 768, begin, end, 1);
    } else {
      write_tiles(p_, b_, out, out + 256, begin, end, 0);
      if (begin + 32 < end) write_tiles(p_, b_, out + 512, out + 768, begin + 32, end, 0);
    }
  }

  const Product& p_;
  const Batch& b_;
  Source& source_;
  const Workspace& ws_;
  typename Source::Row rows_[kRows];
  // Where prefetching into L2 is. It runs through the next rows in order of memory, one block ahead
  // of decoding, which jumps from row to row as no hardware prefetcher can follow.
  const uint8_t* ahead_ = nullptr;
};

template <bool kFold, class Source>
void multiply_block(const Product& p, const Batch& b, Source& source, const Workspace& ws,
                    const Block& block) {
  typename Source::Row rows[kBlockRows];
  list_rows(source, block.begin, block.end, kBlockRows, rows);
  int64_t pairs = block.tiles / 2;
  for (int64_t c = 0; c < b.chunks; c += kPanelChunks) {
    int64_t chunks = std::min(kPanelChunks, b.chunks - c);
    float* sums = ws.sums;
    for (int64_t n = block.begin; n < block.end; n += kPanelRows) {
      PanelAt at{n, c, chunks, c + chunks == b.chunks};
      decode_panel<kFold>(source, rows + (n - block.begin), ws, at, p.k);
      before_tile_loads();
      for (int64_t half = 0; half < 4 && n + half * 16 < block.end; half += 2)
        for (int64_t m = 0; m < pairs; ++m, sums += 1024)
          add_piece(p, ws, b, block, at, {half, 2 * m, true}, sums);
      if (block.tiles % 2) {
        add_piece(p, ws, b, block, at, {0, 2 * pairs, false}, sums);
        sums += 1024;
      }
    }
  }
}

template <class Source, bool kFold>
void multiply_batch(const Product& p, const Batch& b, int64_t begin, int64_t end) {
  thread_local Scratch scale_memory, workspace_memory, sum_memory;
  Workspace ws;
  ws.panel = static_cast<char*>(
      workspace_memory.grow(4 * kPanelSteps * kTile + 4 * kTile + kPanelChunks * kPanelRows * 4));
  ws.partial = reinterpret_cast<float*>(ws.panel + 4 * kPanelSteps * kTile);
  ws.row_scales = ws.partial + 4 * 256;
  std::fill_n(ws.row_scales, kPanelChunks * kPanelRows, 1.0f);
  // Sums of a block stay in L2; while x does too, the smallest block is best for reading W.
  int64_t tiles = std::min(b.tiles, kMaxTiles);
  int64_t step = tiles * b.chunks * 4 * kTile <= (512 << 10) ? kPanelRows : kBlockRows;
  ws.sums = static_cast<float*>(sum_memory.grow((step / 16 * tiles + 4) * kTile));
  Source source(*b.segment.w, begin, end, scale_memory);
  TileScope tiles_ready;
  if (b.tiles == 1) {
    Stream<Source, kFold, false> stream(p, b, source, ws);
    for (int64_t n = begin; n < end; n += 64) stream.run(n, std::min(end, n + 64));
  } else if (b.tiles == 2) {
    Stream<Source, kFold, true> stream(p, b, source, ws);
    for (int64_t n = begin; n < end; n += 32) stream.run(n, std::min(end, n + 32));
  } else {
    for (int64_t m = 0; m < b.tiles; m += kMaxTiles)
      for (int64_t n = begin; n < end; n += step)
        multiply_block<kFold>(p, b, source, ws,
                              {n, std::min(end, n + step), m, std::min(kMaxTiles, b.tiles - m)});
  }
}

HADAL_TARGET_END

using BatchFn = void(const Product&, const Batch&, int64_t, int64_t);

BatchFn* batch_kernel(const Product& p, const Batch& b) {
  if (p.w_dtype == DType::kF8E4M3)
    return b.fold_w ? multiply_batch<Fp8Source, true> : multiply_batch<Fp8Source, false>;
  return p.w_dtype == DType::kI8 ? multiply_batch<Fp4Source, true>
                                 : multiply_batch<Bf16Source, true>;
}

// What a panel of W costs: decoding it, and each tile of x.
int64_t cost(const Batch& b) { return 4 + b.tiles; }

// Cuts the rows of W of all batches in parts of equal cost, one per thread, at multiples of the
// panel's rows.
template <class F>
void for_each_part(ThreadPool& threads, std::span<const Batch> batches, int64_t n, F&& fn) {
  int64_t panels = (n + kPanelRows - 1) / kPanelRows, total = 0, parts = threads.size();
  for (const Batch& b : batches) total += panels * cost(b);
  threads.run(parts, 1, [&](int64_t part, int64_t last, int) {
    int64_t from = total * part / parts, to = total * last / parts, at = 0;
    for (const Batch& b : batches) {
      int64_t c = cost(b);
      // Panels whose start lies in [from, to).
      int64_t begin = std::clamp((from - at + c - 1) / c, int64_t{0}, panels);
      int64_t end = std::clamp((to - at + c - 1) / c, int64_t{0}, panels);
      if (begin < end) fn(b, begin * kPanelRows, std::min(n, end * kPanelRows));
      at += panels * c;
    }
  });
}

void multiply(Context& ctx, const Product& p) {
  std::span<Batch> batches = make_batches(p);
  if (batches.empty()) return;
  pack_batches(ctx.threads, p, batches);
  for_each_part(ctx.threads, batches, p.n, [&](const Batch& b, int64_t begin, int64_t end) {
    batch_kernel(p, b)(p, b, begin, end);
  });
}

}  // namespace

void amx_linear(Context& ctx, const Activation& x, const Weight& w, const Tensor& y) {
  Product p = product_of(x, w, y);
  if (needs_floats(p)) return avx512_linear(ctx, x, w, y);
  multiply(ctx, p);
}

void amx_grouped_linear(Context& ctx, const Activation& x, const int32_t* rows,
                        const int32_t* offsets, std::span<const Weight> experts, const Tensor& y) {
  Product p = product_of(x, rows, offsets, experts, y);
  if (needs_floats(p)) return avx512_grouped_linear(ctx, x, rows, offsets, experts, y);
  multiply(ctx, p);
}

void amx_batched_linear(Context& ctx, const Tensor& x, std::span<const Weight> w, const Tensor& y) {
  Product p = product_of(x, w, y);
  if (x.shape[0] <= kFewRows || needs_floats(p)) return avx512_batched_linear(ctx, x, w, y);
  multiply(ctx, p);
}

}  // namespace hadal
