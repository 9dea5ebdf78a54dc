// The KV compressor: pools the tokens of a finished group into one entry. Source: spec V4 4.2.
// fp32 up to the norm. Independent of T and of how tokens were cut into steps.
#pragma once

#include "kernels/batch.h"
#include "kernels/op.h"

namespace hadal {

struct Compress {
  int ratio = 4;         // tokens per entry
  bool overlap = false;  // ratio 4: entry j pools the a-halves of group j-1 and b-halves of group j
  // Per token the fp32 row [u (c*Dc) | g (c*Dc)], c = overlap ? 2 : 1, g with `ape` already added.
  Tensor step_ug;  // [T, 2*c*Dc] f32
  Tensor ring_ug;  // [slots, capacity, 2*c*Dc] f32, earlier positions (history_row)
  Tensor norm;     // [Dc]
  float eps = 1e-6f;
  Tensor freqs;  // [R/2] f32: rotation of the last R dims at position j * ratio
  // After the rotation: none, e4m3 round trip of the first Dc - R dims in blocks of 64, or
  // Hadamard and e2m1 round trip of all dims.
  enum class Quant { kNone, kFp8, kHadamardFp4 } quant = Quant::kNone;
  Tensor entries;  // [P, page_size, Dc] f32|bf16, written at entry j
  PageTable table;
};

// For every row whose position p has (p + 1) % ratio == 0, writes entry j = p / ratio:
// softmax-weighted pool per channel, rounded to the entries' dtype, RMS norm, rope, quantisation.
void compress(Context& ctx, const Batch& batch, const Compress& c);

// ug[t] = [u[t] | g[t] + ape[p mod ratio]]: u, g [T, c*Dc] f32, ape [ratio, c*Dc] f32|bf16|f16,
// ug [T, 2*c*Dc] f32.
void compress_rows(Context& ctx, const Batch& batch, const Tensor& u, const Tensor& g,
                   const Tensor& ape, const Tensor& ug);

}  // namespace hadal
