// x of one call, brought once into the lane order of W's format (avx512_weights.h), so that every
// row of W is multiplied without shuffles; and y out of it, where columns of W are columns of y.
#pragma once

#include "kernels/cpu/avx512_weights.h"

namespace hadal {

// bf16 words where both sides are exact in bf16 (FP8 codes are), floats otherwise. Columns beyond K
// are 0. Memory of the calling thread, valid until its next call.
struct PreparedRows {
  const char* data;
  int64_t stride;       // bytes from row to row
  int64_t chunk_bytes;  // 256 (words) or 512 (floats)
  const float* scales;  // of each row and chunk
  int64_t scale_stride;

  const char* row(int64_t r) const { return data + r * stride; }
  const float* scale(int64_t r) const { return scales + r * scale_stride; }
};

// Whether the product runs in floats: x or W is not exact in bf16.
inline bool needs_floats(const Product& p) {
  return p.x.data.dtype == DType::kF32 || p.w_dtype == DType::kF32 || p.w_dtype == DType::kF16;
}

Order order_of(DType weight);

// Where each of the 128 columns of a chunk of W in this format lies among its 8 x 16 floats.
const int32_t* float_positions(DType weight);

// The same where words of two rows of W are interleaved by unpacklo and unpackhi: vector 2 j has
// words 0..3 of each lane of vector j in both rows, 2 j + 1 words 4..7.
const int32_t* pair_positions(DType weight);

// y[m, first .. last) from `sums`, which has `first`, a multiple of kChunk, at its start and each
// chunk in the order that `positions` says.
void write_in_order(const float* sums, const int32_t* positions, const Tensor& y, int64_t m,
                    int64_t first, int64_t last);

PreparedRows prepare_rows(ThreadPool& threads, const Product& p);

// Sixteen rows of x (fewer: the rest are 0) for bf16 tiles, in products that need no floats:
//   tiles  [chunks, 4 vectors, 16 pairs of columns, 16 rows, 2] bf16
//   scales [chunks, 16] fp32: of FP8 rows, or 1 where `fold` puts them, powers of two, in the tiles
void pack_tile(const Product& p, const int32_t* rows, int count, bool fold, char* tiles,
               float* scales);

}  // namespace hadal
