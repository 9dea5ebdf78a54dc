// Top-k for few rows: one block of 1,024 threads per row counts the digits of ordered integers as
// topk.cu.h does, finds each digit with a scan, and ranks the chosen indices with a second scan, so
// that the number of barriers does not grow with the row. Rows that may be longer than 32,768 are
// cut into parts: a first launch leaves the best K of each part, a second one chooses among these.
// Whole numbers only. Portable GPU kernels (kl.h); contract in kernels/topk.h.
#pragma once

#include "kernels/cpu/element.h"
#include "kernels/gpu/kl.h"
#include "kernels/gpu/launchers.h"
#include "kernels/gpu/topk_key.cu.h"
#include "kernels/topk.h"

namespace hadal::KL_TARGET {

inline constexpr int kTopkFewThreads = 1024;
inline constexpr int kTopkFewBins = 2048;
inline constexpr int kTopkFewLongest = 32768;  // numbers of a block
inline constexpr int kTopkFewBatch = 8;        // that a thread loads at once
inline constexpr int kTopkFewRounds = 4;       // the same where they are ranked

struct TopkFewArgs {
  const int32_t* positions;
  View<float> scores;
  View<int32_t> out;
  const int32_t* from;  // candidates of the first launch, [rows, parts, k]; null: all scores
  int32_t* to;          // the same, written by the first launch; null: out
  int rows, parts, part, k, ratio;  // part: scores of a part
  int64_t columns;
};

struct TopkFewState {
  int count[kTopkFewBins];  // of digits, then two for each group: greater ones, equal ones
  int sum[2][kl::kMaxWarps];
  int digit, left;
  bool whole;
};

// What a block chooses from: `scores`, or those of them that `list` names.
struct TopkFewInput {
  const float* scores;
  const int32_t* list;
  int n, first;   // first: index of scores[0]
  uint32_t held;  // key of this thread, where there are no more scores than threads

  KL_DEVICE bool holds() const { return !list && n <= kTopkFewThreads; }
  KL_DEVICE uint32_t key(int i) const {
    if (i >= n) return 0;
    if (holds()) return held;
    if (!list) return topk_key(scores[i]);
    return list[i] < 0 ? 0 : topk_key(scores[list[i]]);
  }
  KL_DEVICE int32_t index(int i) const { return list ? list[i] : first + i; }
  KL_DEVICE bool has(int i) const { return i < n && (!list || list[i] >= 0); }
};

// The sums of v over the threads before this one, of each of its numbers.
template <int kNumbers>
KL_DEVICE void topk_few_scan(int (&v)[kNumbers], TopkFewState& s) {
  int own[kNumbers];
  for (int i = 0; i < kNumbers; ++i) own[i] = v[i];
  for (int d = 1; d < kl::warp_size(); d *= 2) {
    for (int i = 0; i < kNumbers; ++i) {
      int below = kl::shfl(v[i], kl::lane() - d < 0 ? kl::lane() : kl::lane() - d);
      if (kl::lane() >= d) v[i] += below;
    }
  }
  for (int i = 0; i < kNumbers; ++i)
    if (kl::lane() == kl::warp_size() - 1) s.sum[i][kl::warp()] = v[i];
  kl::sync();
  for (int i = 0; i < kNumbers; ++i) {  // a lane for each warp: no thread reads all the sums
    int before = kl::lane() < kl::warp() ? s.sum[i][kl::lane()] : 0;
    for (int m = kl::warp_size() / 2; m > 0; m /= 2) before += kl::shfl_xor(before, m);
    v[i] += before - own[i];
  }
  kl::sync();  // the next scan overwrites the sums
}

// s.digit: the largest digit with at least s.left keys at or above it; s.left becomes how many of
// the keys with this digit are among the best, s.whole whether all of them are.
KL_DEVICE void topk_few_digit(TopkFewState& s) {
  constexpr int kEach = kTopkFewBins / kTopkFewThreads;
  int top = kTopkFewBins - 1 - kl::thread() * kEach, left = s.left, v[1] = {};
  for (int i = 0; i < kEach; ++i) v[0] += s.count[top - i];
  topk_few_scan(v, s);  // its barriers: all have read s.left
  for (int i = 0, above = v[0]; i < kEach; ++i) {
    int here = s.count[top - i];
    if (above < left && above + here >= left) {
      s.digit = top - i;
      s.left = left - above;
      s.whole = left - above == here;
    }
    above += here;
  }
  kl::sync();
}

// Counts a digit of the keys that begin as `prefix` does.
KL_DEVICE void topk_few_count(const TopkFewInput& in, uint32_t prefix, uint32_t mask, int shift,
                              uint32_t digits, TopkFewState& s) {
  for (int i = kl::thread(); i < kTopkFewBins; i += kTopkFewThreads) s.count[i] = 0;
  kl::sync();
  for (int base = kl::thread(); base < in.n; base += kTopkFewBatch * kTopkFewThreads) {
    uint32_t key[kTopkFewBatch];
    KL_UNROLL
    for (int i = 0; i < kTopkFewBatch; ++i) key[i] = in.key(base + i * kTopkFewThreads);
    KL_UNROLL
    for (int i = 0; i < kTopkFewBatch; ++i)
      if (in.has(base + i * kTopkFewThreads) && (key[i] & mask) == prefix)
        kl::atomic_add(&s.count[key[i] >> shift & digits], 1);
  }
  kl::sync();
}

// Which lanes of a warp have keys above the threshold, and which have equal ones.
struct TopkFewGroup {
  uint64_t greater, equal;
};

// f(group number, index, lanes) for all keys in order, some of them loaded together.
template <class F>
KL_DEVICE void topk_few_groups(const TopkFewInput& in, uint32_t threshold, F&& f) {
  int rounds = (in.n + kTopkFewThreads - 1) / kTopkFewThreads;
  for (int round = 0; round < rounds; round += kTopkFewRounds) {
    uint32_t key[kTopkFewRounds];
    KL_UNROLL
    for (int i = 0; i < kTopkFewRounds; ++i)
      key[i] = in.key((round + i) * kTopkFewThreads + kl::thread());
    KL_UNROLL
    for (int i = 0; i < kTopkFewRounds; ++i) {
      if (round + i >= rounds) continue;
      int j = (round + i) * kTopkFewThreads + kl::thread();
      bool has = in.has(j);
      TopkFewGroup g = {kl::ballot(has && key[i] > threshold),
                        kl::ballot(has && key[i] == threshold)};
      f((round + i) * kl::warps() + kl::warp(), j, g);
    }
  }
}

// Writes the indices of all keys above the threshold and of the first `equal` equal to it, in
// ascending order.
KL_DEVICE void topk_few_write(const TopkFewInput& in, uint32_t threshold, int equal, int32_t* out,
                              TopkFewState& s) {
  topk_few_groups(in, threshold, [&](int group, int, const TopkFewGroup& g) {
    if (kl::lane() > 0) return;
    s.count[group * 2] = kl::count_bits(g.greater);
    s.count[group * 2 + 1] = kl::count_bits(g.equal);
  });
  kl::sync();
  int v[2] = {}, n = kl::thread();
  bool mine = n < (in.n + kTopkFewThreads - 1) / kTopkFewThreads * kl::warps();
  if (mine) v[0] = s.count[n * 2], v[1] = s.count[n * 2 + 1];
  topk_few_scan(v, s);
  if (mine) s.count[n * 2] = v[0], s.count[n * 2 + 1] = v[1];
  kl::sync();
  uint64_t below = (uint64_t{1} << kl::lane()) - 1;
  topk_few_groups(in, threshold, [&](int group, int j, const TopkFewGroup& g) {
    int greater = s.count[group * 2] + kl::count_bits(g.greater & below);
    int same = s.count[group * 2 + 1] + kl::count_bits(g.equal & below);
    bool keep = (g.greater >> kl::lane() & 1) || ((g.equal >> kl::lane() & 1) && same < equal);
    if (keep) out[greater + (same < equal ? same : equal)] = in.index(j);
  });
}

// Finds the smallest of the best s.left keys digit by digit, until no key with the same digits is
// left out, and writes the indices of all from it on.
KL_DEVICE void topk_few_choose(const TopkFewInput& in, int32_t* out, TopkFewState& s) {
  uint32_t prefix = 0, mask = 0;
  bool whole = false;
  for (int shift : {21, 10, 0}) {
    uint32_t digits = shift ? 2047 : 1023;
    topk_few_count(in, prefix, mask, shift, digits, s);
    topk_few_digit(s);
    prefix |= static_cast<uint32_t>(s.digit) << shift;
    mask |= digits << shift;
    whole = s.whole && prefix > 0;
    if (whole) break;
  }
  topk_few_write(in, whole ? prefix - 1 : prefix, whole ? 0 : s.left, out, s);
}

// limits: vgprs 96, lds 9600
KL_KERNEL(kTopkFewThreads) topk_few_kernel(TopkFewArgs a) {
  KL_SHARED(TopkFewState, s, );
  int blocks = a.from ? a.rows : a.rows * a.parts, step = static_cast<int>(kl::blocks());
  for (int n = static_cast<int>(kl::block()); n < blocks; n += step) {
    int row = a.from ? n : n / a.parts, part = a.from ? 0 : n % a.parts;
    int64_t visible = (a.positions[row] + 1) / a.ratio;
    if (visible > a.k && visible > a.columns) visible = a.columns;
    int32_t* out = a.to ? a.to + int64_t{n} * a.k : a.out.at(row, 0);
    bool all = visible <= a.k;
    if (all && a.to) continue;  // the second launch does not look
    int first = part * a.part;
    TopkFewInput in = {a.scores.at(row, first), nullptr, 0, first, 0};
    if (a.from) {
      in.list = a.from + int64_t{row} * a.parts * a.k;
      in.n = a.parts * a.k;
    } else {
      int64_t left = visible - first;
      in.n = static_cast<int>(left < 0 ? 0 : left < a.part ? left : a.part);
    }
    if (all || (a.to && in.n <= a.k)) {  // nothing to choose
      int end = all ? static_cast<int>(visible) : in.n;
      for (int j = kl::thread(); j < a.k; j += kTopkFewThreads) out[j] = j < end ? first + j : -1;
      continue;  // the same for the whole block
    }
    if (in.holds() && kl::thread() < in.n) in.held = topk_key(in.scores[kl::thread()]);
    if (kl::thread() == 0) s.left = a.k;
    topk_few_choose(in, out, s);
    kl::sync();  // the next row resets the counts
  }
}

// Scores of a part: as few as leave no more candidates than a block takes.
inline int64_t topk_few_part(int64_t columns, int64_t k) {
  if (columns <= kTopkFewLongest) return kTopkFewLongest;
  int64_t part = 8192;
  while (part < kTopkFewLongest && (columns + part - 1) / part * k > kTopkFewLongest) part *= 2;
  return part;
}

int64_t topk_few_workspace(int64_t rows, int64_t columns, int64_t k) {
  int64_t part = topk_few_part(columns, k), parts = (columns + part - 1) / part;
  return parts > 1 ? rows * parts * k * 4 : 0;
}

void topk_few(GpuStream s, const Batch& batch, int32_t row0, const Tensor& scores, int ratio,
              const Tensor& out, const Tensor& workspace) {
  int64_t rows = out.shape[0], k = out.shape[1], columns = scores.shape[1];
  expect_dtype("topk_few", "scores", scores, DType::kF32);
  expect_dtype("topk_few", "out", out, DType::kI32);
  int64_t part = topk_few_part(columns, k), parts = (columns + part - 1) / part;
  int64_t wanted = topk_few_workspace(rows, columns, k);
  HADAL_CHECK(rows <= scores.shape[0] && row0 >= 0 && row0 + rows <= batch.rows && ratio >= 1 &&
                  (parts <= 1 || parts * k <= kTopkFewLongest) && rows * parts < 1 << 30 &&
                  out.stride[1] == 1 && scores.stride[1] == 1,
              "[topk_few] scores " + scores.describe() + ", out " + out.describe() + " of " +
                  std::to_string(batch.rows) + " rows");
  HADAL_CHECK(wanted == 0 || (workspace.bytes() >= wanted &&
                              reinterpret_cast<uintptr_t>(workspace.data) % 4 == 0),
              "[topk_few] workspace " + workspace.describe() + ", wanted " +
                  std::to_string(wanted) + " bytes");
  if (k == 0) return;
  TopkFewArgs a = {};
  a.positions = batch.positions + row0;
  a.scores = view<float>(scores);
  a.out = view<int32_t>(out);
  a.rows = static_cast<int>(rows);
  a.parts = static_cast<int>(parts < 1 ? 1 : parts);
  a.part = static_cast<int>(part);
  a.k = static_cast<int>(k);
  a.ratio = ratio;
  a.columns = columns;
  if (parts > 1) {
    a.to = workspace.at<int32_t>();
    kl::launch(topk_few_kernel, {kl::grid(s, rows * parts)}, kTopkFewThreads, 0, s, a);
    a.from = a.to;
    a.to = nullptr;
  }
  kl::launch(topk_few_kernel, {kl::grid(s, rows)}, kTopkFewThreads, 0, s, a);
}

}  // namespace hadal::KL_TARGET
