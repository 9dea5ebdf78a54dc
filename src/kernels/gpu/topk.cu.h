// Top-k by the rank of an ordered integer, 11 bits at a time: one block per row, counts in shared
// memory, then a pass that writes the chosen indices in ascending order. Whole numbers only, so
// the order of the counting does not matter. A portable GPU kernel (kl.h); contract in
// kernels/topk.h.
#pragma once

#include "kernels/cpu/element.h"
#include "kernels/gpu/kl.h"
#include "kernels/gpu/launchers.h"
#include "kernels/gpu/topk_key.cu.h"
#include "kernels/topk.h"

namespace hadal::KL_TARGET {

inline constexpr int kTopkThreads = 256;
inline constexpr int kTopkBins = 2048;

struct TopkArgs {
  const int32_t* positions;
  View<float> scores;
  View<int32_t> out;
  int64_t rows, columns, k;
  int ratio;
};

struct TopkState {
  int count[kTopkBins];
  int sum[kTopkThreads];
  uint32_t digit;
  int left;
};

// The largest digit with at least `left` keys at or above it; `left` becomes how many of the keys
// with this digit are among the best.
KL_DEVICE void topk_digit(TopkState& s) {
  int per = kTopkBins / kTopkThreads, sum = 0;
  for (int i = 0; i < per; ++i) sum += s.count[kl::thread() * per + i];
  s.sum[kl::thread()] = sum;
  kl::sync();
  if (kl::thread() == 0) {
    int left = s.left, group = kTopkThreads - 1;
    while (s.sum[group] < left) left -= s.sum[group--];
    int digit = group * per + per - 1;
    while (s.count[digit] < left) left -= s.count[digit--];
    s.digit = static_cast<uint32_t>(digit);
    s.left = left;
  }
  kl::sync();
}

// limits: vgprs 64, lds 9600
KL_KERNEL(kTopkThreads) topk_kernel(TopkArgs a) {
  KL_SHARED(TopkState, s, );
  for (int64_t row = kl::block(); row < a.rows; row += kl::blocks()) {
    int64_t visible = (a.positions[row] + 1) / a.ratio;
    if (visible > a.k && visible > a.columns) visible = a.columns;
    if (visible <= a.k || a.k == 0) {
      for (int64_t j = kl::thread(); j < a.k; j += kl::threads())
        *a.out.at(row, j) = j < visible ? static_cast<int32_t>(j) : -1;
      continue;  // the same for the whole block
    }
    const float* scores = a.scores.at(row);
    uint32_t prefix = 0, mask = 0;
    if (kl::thread() == 0) s.left = static_cast<int>(a.k);
    for (int pass = 0; pass < 3; ++pass) {
      int shift = pass == 0 ? 21 : pass == 1 ? 10 : 0;
      uint32_t digits = pass == 2 ? 1023 : 2047;
      for (int i = kl::thread(); i < kTopkBins; i += kl::threads()) s.count[i] = 0;
      kl::sync();
      for (int64_t j = kl::thread(); j < visible; j += kl::threads()) {
        uint32_t key = topk_key(scores[j]);
        if ((key & mask) == prefix) kl::atomic_add(&s.count[key >> shift & digits], 1);
      }
      kl::sync();
      topk_digit(s);
      prefix |= s.digit << shift;
      mask |= digits << shift;
    }
    int64_t equal = s.left, taken = 0, written = 0;
    for (int64_t base = 0; base < visible; base += kl::threads()) {
      int64_t j = base + kl::thread();
      uint32_t key = j < visible ? topk_key(scores[j]) : 0;
      bool same = j < visible && key == prefix;
      kl::Rank rank = kl::block_rank(same);
      bool keep = j < visible && (key > prefix || (same && taken + rank.before < equal));
      taken += rank.total;
      rank = kl::block_rank(keep);
      if (keep) *a.out.at(row, written + rank.before) = static_cast<int32_t>(j);
      written += rank.total;
    }
    kl::sync();  // the next row resets the counts
  }
}

void topk(GpuStream s, const Batch& batch, int32_t row0, const Tensor& scores, int ratio,
          const Tensor& out) {
  int64_t rows = out.shape[0], k = out.shape[1];
  expect_dtype("topk", "scores", scores, DType::kF32);
  expect_dtype("topk", "out", out, DType::kI32);
  HADAL_CHECK(rows <= scores.shape[0] && row0 >= 0 && row0 + rows <= batch.rows && ratio >= 1,
              "[topk] scores " + scores.describe() + ", out " + out.describe() + " of " +
                  std::to_string(batch.rows) + " rows");
  kl::launch(topk_kernel, {kl::grid(s, rows)}, kTopkThreads, 0, s,
             TopkArgs{batch.positions + row0, view<float>(scores), view<int32_t>(out), rows,
                      scores.shape[1], k, ratio});
}

}  // namespace hadal::KL_TARGET
