// Top-k by rank of an ordered integer: exact, stable, no comparison of floats that may be NaN.
#include "kernels/topk.h"

#include <bit>

#include "kernels/cpu/element.h"
#include "kernels/cpu/ops.h"

namespace hadal::cpu {
namespace {

struct TopkKeys {};

// Orders as the floats do; -0 equals +0, NaN is below everything.
uint32_t order_key(float v) {
  if (v != v) return 0;
  uint32_t u = std::bit_cast<uint32_t>(v + 0.0f);
  return u & 0x80000000u ? ~u : u | 0x80000000u;
}

// The k-th largest key (k >= 1) and how many keys equal to it belong to the best k.
struct Threshold {
  uint32_t key;
  int64_t equal;
};

// Finds it 11 bits at a time, so that long rows are read a few times and never sorted.
Threshold find_threshold(const uint32_t* keys, int64_t n, int64_t k) {
  uint32_t prefix = 0, mask = 0;
  int64_t left = k;
  for (int shift : {21, 10, 0}) {
    uint32_t bits = shift == 0 ? 10 : 11, digit_mask = (1u << bits) - 1;
    int64_t count[2048] = {};
    for (int64_t i = 0; i < n; ++i)
      if ((keys[i] & mask) == prefix) ++count[keys[i] >> shift & digit_mask];
    uint32_t digit = digit_mask;
    while (count[digit] < left) left -= count[digit--];
    prefix |= digit << shift;
    mask |= digit_mask << shift;
  }
  return {prefix, left};
}

void topk_row(const float* scores, int64_t visible, int64_t k, int32_t* out) {
  if (visible <= k || k == 0) {
    for (int64_t j = 0; j < k; ++j) out[j] = j < visible ? static_cast<int32_t>(j) : -1;
    return;
  }
  uint32_t* keys = scratch<uint32_t, TopkKeys>(visible);
  for (int64_t j = 0; j < visible; ++j) keys[j] = order_key(scores[j]);
  Threshold th = find_threshold(keys, visible, k);
  int64_t n = 0;
  for (int64_t j = 0; j < visible; ++j) {
    bool equal = keys[j] == th.key && th.equal > 0;
    if (equal) --th.equal;
    if (equal || keys[j] > th.key) out[n++] = static_cast<int32_t>(j);
  }
}

}  // namespace

void topk(Context& ctx, const Batch& batch, int32_t row0, const Tensor& scores, int ratio,
          const Tensor& out) {
  int64_t rows = out.shape[0], k = out.shape[1];
  expect_dtype("topk", "scores", scores, DType::kF32);
  expect_dtype("topk", "out", out, DType::kI32);
  HADAL_CHECK(rows <= scores.shape[0] && row0 >= 0 && row0 + rows <= batch.rows && ratio >= 1,
              "[topk] scores " + scores.describe() + ", out " + out.describe() + " of " +
                  std::to_string(batch.rows) + " rows");
  ctx.threads.run(rows, grain_of(scores.shape[1] * 8), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t visible = (batch.positions[row0 + i] + 1) / ratio;
      HADAL_CHECK(visible <= k || visible <= scores.shape[1],
                  "[topk] scores " + scores.describe() + " for " + std::to_string(visible) +
                      " visible entries");
      topk_row(scores.at<const float>(i), visible, k, out.at<int32_t>(i));
    }
  });
}

}  // namespace hadal::cpu
