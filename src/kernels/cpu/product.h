// linear, grouped_linear and batched_linear as one thing for the tuned kernels: segments, each a
// weight and the rows of x and y that go with it (one segment; one per expert; one per group).
#pragma once

#include "kernels/cpu/scratch.h"
#include "kernels/linear.h"

namespace hadal {

struct Segment {
  const Weight* w;
  int64_t count;  // rows of y; 0: W may be empty
  // Row i of the segment multiplies row (rows ? rows[x0 + i] : x0 + i * x_step) of x.
  int64_t x0, x_step;
  const int32_t* rows;
  char* y;  // row i at y + i * y_stride bytes
  int64_t y_stride;

  int64_t x_row(int64_t i) const { return rows ? rows[x0 + i] : x0 + i * x_step; }
};

struct Product {
  std::span<const Weight> weights;
  int64_t n, k;
  DType w_dtype;
  // x: row r = outer * groups + group, both with a stride.
  Activation x;
  int64_t x_rows, groups;
  // y, and how segments cut it
  Tensor y;
  const int32_t* rows;
  const int32_t* offsets;

  int64_t segments() const { return static_cast<int64_t>(weights.size()); }
  Segment segment(int64_t s) const;
  const void* x_data(int64_t r) const;
  // [ceil(K / 128)] of row r, or null where x is not FP8.
  const float* x_scale(int64_t r) const;
};

Product product_of(const Activation& x, const Weight& w, const Tensor& y);
Product product_of(const Activation& x, const int32_t* rows, const int32_t* offsets,
                   std::span<const Weight> experts, const Tensor& y);
Product product_of(const Tensor& x, std::span<const Weight> w, const Tensor& y);

// FP8 scales of rows [begin, end) of w as fp32, [row blocks, column blocks], in `scratch`.
const float* expand_fp8_scales(const Weight& w, int64_t begin, int64_t end, Scratch& scratch);

inline bool is_power_of_two(float f) {
  return (std::bit_cast<uint32_t>(f) & 0x7fffffu) == 0 && f > 0;
}

// Whether every scale of w is a power of two, so that values times scale are exact in bf16.
bool power_of_two_scales(const Weight& w);

// [M, C] of group g out of [M, G, C].
Tensor group_of(const Tensor& t, int64_t g);

// Calls fn(segment, begin, end, thread) on the rows of W that a thread is to do: the rows of all
// segments that have any rows of y are laid end to end and cut evenly, at multiples of `grain`.
template <class F>
void for_each_row_range(ThreadPool& threads, const Product& p, int64_t grain, F&& fn) {
  int64_t active = 0, padded = (p.n + grain - 1) / grain * grain;
  for (int64_t s = 0; s < p.segments(); ++s) active += p.segment(s).count > 0;
  threads.run(active * padded, grain, [&](int64_t begin, int64_t end, int thread) {
    int64_t first = 0;  // position of the segment's row 0
    for (int64_t s = 0; s < p.segments() && first < end; ++s) {
      Segment segment = p.segment(s);
      if (segment.count == 0) continue;
      int64_t b = begin > first ? begin - first : 0;
      int64_t e = end - first < p.n ? end - first : p.n;
      if (b < e) fn(segment, b, e, thread);
      first += padded;
    }
  });
}

}  // namespace hadal
