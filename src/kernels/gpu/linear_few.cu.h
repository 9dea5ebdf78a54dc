// Matrix products for few rows of x (decode), bound by reading the weight once. A team of lanes
// sums four rows of W: each lane loads eight pieces of 16 bytes before it uses one, so that a
// resident warp has 4 KB in flight. Where W has few rows, several teams of a block share K and add
// their parts in order. Portable GPU kernels (kl.h); contract in kernels/linear.h. A row of y
// depends on its row of x alone, also bit for bit: how K is cut follows from the weight's shape.
//
// What a call costs on a GPU of bandwidth B (H200: 4.5 TB/s): W / B + about 2 us in which the
// first loads return and the last sums are added. That holds while the instructions per weight stay
// below those that the card has: 128 lanes x 132 x 1.75 GHz over B are 6.5 for FP8, 13 for BF16,
// 3.5 for FP4 with its scales. The machine code of one row has 4.5 for FP8 x FP8 and 4.7 for
// FP8 x FP4, which is therefore bound by them near 70 % of B. Each further row adds one per weight
// and its share of decoding x: from three rows of FP8 on, arithmetic is the bound.
//   FP8 4096 x 4096, one row: 16.8 MB / B + 2 = 5.7 us   FP8 1024 x 4096: 4.2 MB / B + 2 = 2.9 us
//   6 experts of FP4 2048 x 4096: 26.7 MB / 0.7 B + 2 = 10.5 us
//   8 groups of FP8 1024 x 4096: 33.6 MB / B + 2 = 9.5 us
//   128 heads of FP8 128 x 512: 8.4 MB / B + 2 = 3.9 us, either way
#pragma once

#include "kernels/gpu/kl.h"
#include "kernels/gpu/launchers.h"
#include "kernels/gpu/linear_args.cu.h"
#include "kernels/gpu/linear_decode.cu.h"

namespace hadal::KL_TARGET {

inline constexpr int kFewThreads = 256;
inline constexpr int kFewRows = 4;                  // of W, per team
inline constexpr int kFewSteps = 2;                 // pieces of each row that a lane loads at once
inline constexpr int kFewM = 2;                     // rows of x in one pass over W
inline constexpr int kFewLeast = 8, kFewMost = 32;  // lanes of a team
inline constexpr int kFewTeams = kFewThreads / kFewLeast;
inline constexpr int kFewWays = kFewThreads / kFewMost;
inline constexpr int64_t kFewEnough = 4096;  // teams that fill a card
inline constexpr int64_t kFewGuess = 4;      // experts that surely have rows
inline constexpr int64_t kFewBlocks = 1056;  // that share the experts
inline constexpr int kTurnLanes = 4, kTurnRows = kFewThreads / kTurnLanes, kTurnSteps = 4;
inline constexpr int kTurnParts = kFewThreads / kFewMost;

struct FewArgs : LinearArgs {
  int64_t x_bytes, w_bytes;  // from row to row
  // 2^team_bits lanes share a row of W, 2^ways_bits teams its columns.
  int team_bits, ways_bits;
  int units;  // blocks of work in a group
};

template <class F>
inline constexpr bool kScaled = !std::is_same_v<typename F::Scale, NoScale>;

template <class W>
KL_DEVICE const typename W::Scale* few_scale_row(const FewArgs& a, int64_t group, int64_t n) {
  auto* base = reinterpret_cast<const typename W::Scale*>(a.w_scale + group * a.w_scale_group);
  int64_t row = W::kScaleRows == 1 ? n : (a.row0 + group * a.row0_group + n) / W::kScaleRows;
  return base + row * a.w_scale_stride;
}

// The rows that a lane reads, and what one lane has of the sums.
template <class W, int kM>
struct FewRows {
  const char* w;  // the first row; the others from there
  const typename W::Scale* w_scale;
  int w_next[kFewRows], w_scale_next[kFewRows];  // bytes, scales
  const char* x[kM];
  const float* x_scale[kM];
};
template <int kM>
using FewSums = float[kM][kFewRows];

// Columns of x that belong to one piece of W.
template <class X, class W>
inline constexpr int kXWords = 4 * W::kPerWord / X::kPerWord;
template <class X, class W>
struct FewX {
  uint32_t word[kXWords<X, W>];
  float scale;
};

template <int kCount>
KL_DEVICE void few_load_words(const char* from, uint32_t* out) {
  constexpr int kAtOnce = kCount < 4 ? kCount : 4;
  KL_UNROLL
  for (int i = 0; i < kCount; i += kAtOnce) {
    Words<kAtOnce> v = reinterpret_cast<const Words<kAtOnce>*>(from)[i / kAtOnce];
    KL_UNROLL
    for (int j = 0; j < kAtOnce; ++j) out[i + j] = v.word[j];
  }
}

template <class X, class W>
KL_DEVICE float few_x_scale(const float* row, int piece) {
  if constexpr (kScaled<X>) return row[piece * (4 * W::kPerWord) / X::kScaleColumns];
  return 1;
}

// Adds one piece of each row of W times the same columns of x.
template <class X, class W, int kM>
KL_DEVICE void few_piece(const FewRows<W, kM>& rows, const Bits128 (&w)[kFewRows],
                         const typename W::Scale (&w_scale)[kFewRows], const FewX<X, W>* ahead,
                         int piece, FewSums<kM>& total) {
  constexpr int kColumns = 4 * W::kPerWord;
  constexpr int kPart = X::kPerWord > W::kPerWord ? X::kPerWord : W::kPerWord;
  constexpr int kWords = kXWords<X, W>, kPartWords = kPart / X::kPerWord;
  constexpr bool kWhole = kM * kWords <= 32;  // else x waits in the cache, not in registers
  FewX<X, W> x[kM];
  FewSums<kM> part = {};
  KL_UNROLL
  for (int m = 0; m < kM; ++m) {
    if (ahead) {
      x[m] = ahead[m];
      continue;
    }
    if constexpr (kWhole) few_load_words<kWords>(rows.x[m] + piece * kWords * 4, x[m].word);
    x[m].scale = few_x_scale<X, W>(rows.x_scale[m], piece);
  }
  KL_UNROLL
  for (int c = 0; c < kColumns; c += kPart) {
    float b[kM][kPart];
    KL_UNROLL
    for (int m = 0; m < kM; ++m) {
      int first = c / X::kPerWord;
      if constexpr (!kWhole)
        few_load_words<kPartWords>(rows.x[m] + (piece * kWords + first) * 4, x[m].word + first);
      KL_UNROLL
      for (int i = 0; i < kPartWords; ++i)
        X::decode(in_order(x[m].word[first + i]), b[m] + i * X::kPerWord);
    }
    KL_UNROLL
    for (int r = 0; r < kFewRows; ++r) {
      float v[kPart];
      KL_UNROLL
      for (int i = 0; i < kPart / W::kPerWord; ++i)
        W::decode(in_order(w[r].word[c / W::kPerWord + i]), v + i * W::kPerWord);
      KL_UNROLL
      for (int m = 0; m < kM; ++m) {
        KL_UNROLL
        for (int i = 0; i < kPart; ++i) part[m][r] = fmaf(b[m][i], v[i], part[m][r]);
        part[m][r] = in_order(part[m][r]);
      }
    }
  }
  KL_UNROLL
  for (int r = 0; r < kFewRows; ++r) {
    float s = 1;
    if constexpr (kScaled<W>) s = scale_value(w_scale[r]);
    KL_UNROLL
    for (int m = 0; m < kM; ++m)
      total[m][r] = fmaf(part[m][r] * W::kUnit, x[m].scale * s, total[m][r]);
  }
}

// The sums of a lane: pieces `share`, share + ways, ... of the rows, kFewSteps at a time.
template <class X, class W, int kM>
KL_DEVICE void few_dot(const FewArgs& a, const FewRows<W, kM>& rows, int share,
                       FewSums<kM>& total) {
  constexpr int kColumns = 4 * W::kPerWord;
  constexpr int kWords = kXWords<X, W>;
  constexpr bool kAhead = kM == 1 && kWords <= 16;
  int pieces = static_cast<int>(a.k) / kColumns, team = 1 << a.team_bits;
  int step = kFewSteps * team, stride = step << a.ways_bits;
  KL_UNROLL_BY(1)
  for (int p0 = share * step + (kl::thread() & (team - 1)); p0 < pieces; p0 += stride) {
    Bits128 w[kFewSteps][kFewRows];
    typename W::Scale scale[kFewSteps][kFewRows] = {};
    FewX<X, W> x[kFewSteps][1] = {};
    KL_UNROLL
    for (int u = 0; u < kFewSteps; ++u) {
      int p = p0 + u * team;
      KL_UNROLL
      for (int r = 0; r < kFewRows; ++r) {
        if (p < pieces) w[u][r] = load_once(rows.w + p * 16 + rows.w_next[r]);
        if constexpr (kScaled<W>) {
          if (p < pieces)
            scale[u][r] = rows.w_scale[p * kColumns / W::kScaleColumns + rows.w_scale_next[r]];
        }
      }
      if constexpr (kAhead) {
        if (p < pieces) {
          few_load_words<kWords>(rows.x[0] + p * kWords * 4, x[u][0].word);
          x[u][0].scale = few_x_scale<X, W>(rows.x_scale[0], p);
        }
      }
    }
    KL_UNROLL
    for (int u = 0; u < kFewSteps; ++u) {
      int p = p0 + u * team;
      if (p < pieces) few_piece<X, W, kM>(rows, w[u], scale[u], kAhead ? x[u] : nullptr, p, total);
    }
  }
}

// Rows [m0, m0 + kM) of y below `end`, columns n0.. of the block's teams.
template <class X, class W, int kM>
KL_DEVICE void few_pass(const FewArgs& a, int64_t group, int64_t m0, int64_t end, int64_t n0,
                        float (*part)[kFewM * kFewRows]) {
  int lanes = 1 << a.team_bits, ways = 1 << a.ways_bits;
  int team = kl::thread() >> a.team_bits, lane = kl::thread() & (lanes - 1);
  FewRows<W, kM> rows;
  int64_t first_n = n0 + (team >> a.ways_bits) * kFewRows;
  if (first_n >= a.n) first_n = a.n - 1;
  rows.w = a.w.data + group * a.w.group + first_n * a.w_bytes;
  if constexpr (kScaled<W>) rows.w_scale = few_scale_row<W>(a, group, first_n);
  KL_UNROLL
  for (int r = 0; r < kFewRows; ++r) {
    int64_t n = first_n + r < a.n ? first_n + r : a.n - 1;  // rows beyond are read, not written
    rows.w_next[r] = static_cast<int>((n - first_n) * a.w_bytes);
    if constexpr (kScaled<W>)
      rows.w_scale_next[r] = static_cast<int>(few_scale_row<W>(a, group, n) - rows.w_scale);
  }
  KL_UNROLL
  for (int m = 0; m < kM; ++m) {
    int64_t row = m0 + m < end ? m0 + m : end - 1;
    if (a.rows) row = a.rows[row];
    rows.x[m] = a.x.data + group * a.x.group + row * a.x_bytes;
    if constexpr (kScaled<X>) rows.x_scale[m] = a.x_scale.at(row);
  }
  FewSums<kM> total = {};
  few_dot<X, W, kM>(a, rows, team & (ways - 1), total);
  KL_UNROLL
  for (int i = 0; i < kM * kFewRows; ++i) {
    float& v = total[i / kFewRows][i % kFewRows];
    KL_UNROLL_BY(1)
    for (int mask = lanes / 2; mask > 0; mask /= 2) v += kl::shfl_xor(v, mask);
    if (lane == 0) part[team][i] = v;
  }
  kl::sync();
  int outputs = (kFewThreads >> a.team_bits >> a.ways_bits) * kM * kFewRows;
  for (int i = kl::thread(); i < outputs; i += kl::threads()) {
    int first = i / (kM * kFewRows), at = i % (kM * kFewRows);
    int64_t m = m0 + at / kFewRows, n = n0 + first * kFewRows + at % kFewRows;
    float v = part[first << a.ways_bits][at];
    for (int s = 1; s < ways; ++s) v += part[(first << a.ways_bits) + s][at];
    if (m < end && n < a.n) store_result(a, group, m, n, v);
  }
  kl::sync();  // the next pass overwrites `part`
}

// limits: vgprs 168, lds 8192
template <class X, class W, int kM>
KL_KERNEL(kFewThreads, 2)
linear_few_kernel(FewArgs a) {
  KL_SHARED(float, part, [kFewTeams][kFewM * kFewRows]);
  KL_SHARED(int32_t, list, [kMostExperts]);
  int64_t groups = a.offsets ? experts_with_rows(a, list) : a.groups;
  int width = (kFewThreads >> a.team_bits >> a.ways_bits) * kFewRows;
  for (int64_t i = kl::block(); i < groups * a.units; i += kl::blocks()) {
    int64_t group = i / a.units, n0 = i % a.units * width, m = 0, end = a.m;
    if (a.offsets) {
      group = list[group];
      m = a.offsets[group];
      end = a.offsets[group + 1];
    }
    for (; m < end; m += kM) {
      if (kM == 1 || end - m == 1)
        few_pass<X, W, 1>(a, group, m, end, n0, part);
      else
        few_pass<X, W, kM>(a, group, m, end, n0, part);
    }
  }
}

// Halves v between lanes kMask apart until each row lane of the warp holds sums of its own columns.
template <int kCount, int kMask>
KL_DEVICE void turn_fold(float* v) {
  bool upper = kl::thread() & kMask;
  KL_UNROLL
  for (int i = 0; i < kCount / 2; ++i) {
    float keep = upper ? v[i + kCount / 2] : v[i], give = upper ? v[i] : v[i + kCount / 2];
    v[i] = keep + kl::shfl_xor(give, kMask);
  }
  if constexpr (kCount == 1) v[0] += kl::shfl_xor(v[0], kMask);
  if constexpr (kMask > kTurnLanes) turn_fold<kCount == 1 ? 1 : kCount / 2, kMask / 2>(v);
}

// A thread's sums: its columns of every kTurnRows-th row of W.
template <class X, class W, int kM>
KL_DEVICE void turn_dot(const FewArgs& a, int64_t group, int64_t m0, int64_t end, int piece,
                        float (&total)[kM][4 * W::kPerWord]) {
  constexpr int kColumns = 4 * W::kPerWord;
  const char* base = a.w.data + group * a.w.group + piece * 16;
  auto* x = reinterpret_cast<const X*>(a.x.data + group * a.x.group);
  KL_UNROLL_BY(1)
  for (int64_t j0 = kl::thread() / kTurnLanes; j0 < a.k; j0 += kTurnRows * kTurnSteps) {
    Bits128 w[kTurnSteps];
    float scale[kTurnSteps];
    KL_UNROLL
    for (int u = 0; u < kTurnSteps; ++u) {
      int64_t j = j0 + u * kTurnRows;
      if (j < a.k) w[u] = load_once(base + j * a.w_bytes);
      scale[u] = 1;
      if constexpr (kScaled<W>) {
        if (j < a.k)
          scale[u] = scale_value(few_scale_row<W>(a, group, j)[piece * kColumns / kFp8Block]);
      }
    }
    KL_UNROLL
    for (int u = 0; u < kTurnSteps; ++u) {
      int64_t j = j0 + u * kTurnRows;
      if (j >= a.k) continue;
      float v[kColumns];
      KL_UNROLL
      for (int i = 0; i < 4; ++i) W::decode(in_order(w[u].word[i]), v + i * W::kPerWord);
      KL_UNROLL
      for (int m = 0; m < kM; ++m) {
        int64_t row = m0 + m < end ? m0 + m : end - 1;
        float b = load(x[row * a.x.stride + j]) * scale[u];
        KL_UNROLL
        for (int c = 0; c < kColumns; ++c) total[m][c] = fmaf(b, v[c], total[m][c]);
      }
    }
  }
}

template <class X, class W, int kM>
KL_DEVICE void turn_pass(const FewArgs& a, int64_t group, int64_t m0, int64_t end, int unit,
                         float (*part)[kFewM][kTurnLanes * 4 * W::kPerWord]) {
  constexpr int kColumns = 4 * W::kPerWord, kLeft = kColumns < 8 ? 1 : kColumns / 8;
  int across = kl::thread() % kTurnLanes, lane = kl::thread() % kFewMost;
  int piece = unit * kTurnLanes + across;
  float total[kM][kColumns] = {};
  if (piece * kColumns < a.n) turn_dot<X, W, kM>(a, group, m0, end, piece, total);
  int first = 0;  // of the columns that turn_fold leaves here
  for (int mask = kFewMost / 2, half = kColumns / 2; mask >= kTurnLanes; mask /= 2, half /= 2)
    if (lane & mask) first += half;
  bool twice = kColumns < 8 && (lane & kTurnLanes);  // its neighbour has the same sum
  KL_UNROLL
  for (int m = 0; m < kM; ++m) {
    turn_fold<kColumns, kFewMost / 2>(total[m]);
    KL_UNROLL
    for (int i = 0; i < kLeft; ++i)
      if (!twice) part[kl::thread() / kFewMost][m][across * kColumns + first + i] = total[m][i];
  }
  kl::sync();
  for (int i = kl::thread(); i < kM * kTurnLanes * kColumns; i += kl::threads()) {
    int m = i / (kTurnLanes * kColumns), c = i % (kTurnLanes * kColumns);
    int64_t n = int64_t{unit} * kTurnLanes * kColumns + c;
    float v = part[0][m][c];
    for (int s = 1; s < kTurnParts; ++s) v += part[s][m][c];
    if (m0 + m < end && n < a.n) store_result(a, group, m0 + m, n, v);
  }
  kl::sync();  // the next pass overwrites `part`
}

// W by columns: neighbouring threads take neighbouring pieces of a row.
// limits: vgprs 128, lds 8192
template <class X, class W, int kM>
KL_KERNEL(kFewThreads, 2)
linear_turned_kernel(FewArgs a) {
  KL_SHARED(float, part, [kTurnParts][kFewM][kTurnLanes * 4 * W::kPerWord]);
  int items = a.units * static_cast<int>(a.groups);
  for (int i = static_cast<int>(kl::block()); i < items; i += static_cast<int>(kl::blocks())) {
    int group = i / a.units, unit = i % a.units;
    for (int64_t m = 0; m < a.m; m += kM) {
      if (kM == 1 || a.m - m == 1)
        turn_pass<X, W, 1>(a, group, m, a.m, unit, part);
      else
        turn_pass<X, W, kM>(a, group, m, a.m, unit, part);
    }
  }
}

template <class F>
void with_weight_format(const LinearArgs& a, F&& f) {
  switch (a.w.dtype) {
    case DType::kF32:
      return f(AsF32{});
    case DType::kBF16:
      return f(AsBF16{});
    case DType::kF16:
      return f(AsF16{});
    case DType::kF8E4M3:
      return a.w_scale_dtype == DType::kF32 ? f(AsFp8<float>{}) : f(AsFp8<uint8_t>{});
    default:
      HADAL_CHECK(a.w.dtype == DType::kI8,
                  std::string("[linear_few] W of dtype ") + dtype_name(a.w.dtype));
      return f(AsFp4{});
  }
}

template <class F>
void with_activation_format(const LinearArgs& a, F&& f) {
  if (a.x.dtype == DType::kF8E4M3) return f(AsFp8<float>{});
  with_activation("linear_few", a.x.dtype, [&](auto type) {
    if constexpr (std::is_same_v<decltype(type), float>)
      f(AsF32{});
    else
      f(AsBF16{});
  });
}

// Are all rows of both operands whole pieces of 16 bytes, at multiples of 16?
inline bool few_fits(const FewArgs& a) {
  int64_t columns = 16 / dtype_size(a.w.dtype) * (a.w.dtype == DType::kI8 ? 2 : 1);
  auto whole = [](const LinearOperand& o, int64_t bytes) {
    return reinterpret_cast<uintptr_t>(o.data) % 16 == 0 && bytes % 16 == 0 && o.group % 16 == 0;
  };
  return (a.transposed ? a.n : a.k) % columns == 0 && a.k > 0 && a.n > 0 && whole(a.w, a.w_bytes) &&
         (a.transposed || whole(a.x, a.x_bytes)) && (!a.offsets || a.groups <= kMostExperts);
}

// Cuts the work; false where the shape needs the tiles of linear.cu.h.
inline bool few_plan(FewArgs& a) {
  a.x_bytes = a.x.stride * dtype_size(a.x.dtype);
  a.w_bytes = a.w.stride * dtype_size(a.w.dtype);
  if (!few_fits(a)) return false;
  int64_t columns = 16 / dtype_size(a.w.dtype) * (a.w.dtype == DType::kI8 ? 2 : 1);
  auto cut = [&a](int64_t width) {
    a.units = static_cast<int>((a.n + width - 1) / width);
    return a.groups * a.units < (int64_t{1} << 30);
  };
  if (a.transposed) return cut(kTurnLanes * columns);
  int64_t pieces = a.k / columns, groups = a.offsets ? std::min(a.groups, kFewGuess) : a.groups;
  int64_t team = kFewLeast, ways = 1;
  for (a.team_bits = 3; team < kFewMost && team < pieces; ++a.team_bits) team *= 2;
  int64_t rounds = (pieces + kFewSteps * team - 1) / (kFewSteps * team);
  int64_t teams = groups * ((a.n + kFewRows - 1) / kFewRows);
  for (; ways < kFewWays && ways < rounds && teams * ways < kFewEnough; ++a.ways_bits) ways *= 2;
  return cut(kFewThreads / team / ways * kFewRows);
}

// False: nothing was launched.
inline bool launch_few(GpuStream s, const LinearArgs& problem) {
  FewArgs a = {problem, 0, 0, 0, 0, 0};
  if (!few_plan(a)) return false;
  int64_t items = a.groups * a.units;
  kl::Grid grid = {kl::grid(s, a.offsets ? std::min<int64_t>(items, kFewBlocks) : items)};
  if (a.m == 0) return true;
  bool one = a.m == 1 && !a.offsets;
  with_weight_format(a, [&](auto w) {
    using W = decltype(w);
    with_activation_format(a, [&](auto x) {
      using X = decltype(x);
      kl::launch(one ? linear_few_kernel<X, W, 1> : linear_few_kernel<X, W, kFewM>, grid,
                 kFewThreads, 0, s, a);
    });
  });
  return true;
}

inline bool launch_turned(GpuStream s, const LinearArgs& problem) {
  FewArgs a = {problem, 0, 0, 0, 0, 0};
  if (!few_plan(a)) return false;
  if (a.m == 0) return true;
  kl::Grid grid = {kl::grid(s, a.groups * a.units)};
  with_weight_format(a, [&](auto w) {
    using W = decltype(w);
    if constexpr (!std::is_same_v<W, AsFp4>) {
      with_activation("batched_linear_transposed_few", a.x.dtype, [&](auto x) {
        using X = decltype(x);
        kl::launch(a.m == 1 ? linear_turned_kernel<X, W, 1> : linear_turned_kernel<X, W, kFewM>,
                   grid, kFewThreads, 0, s, a);
      });
    }
  });
  return true;
}

void linear_few(GpuStream s, const Activation& x, const Weight& w, const Tensor& y) {
  if (!launch_few(s, linear_problem(x, w, y))) linear(s, x, w, y);
}

void linear_pair_few(GpuStream s, const Activation& x, const Weight& w0, const Weight& w1,
                     const Tensor& y0, const Tensor& y1) {
  if (launch_few(s, pair_problem(x, {w0, w1}, y0, y1))) return;
  linear(s, x, w0, y0);
  linear(s, x, w1, y1);
}

void grouped_linear_few(GpuStream s, const Activation& x, const int32_t* rows,
                        const int32_t* offsets, std::span<const Weight> experts, const Tensor& y) {
  if (!launch_few(s, grouped_problem(x, rows, offsets, experts, y)))
    grouped_linear(s, x, rows, offsets, experts, y);
}

void batched_linear_few(GpuStream s, const Tensor& x, std::span<const Weight> w, const Tensor& y) {
  if (!launch_few(s, batched_problem(x, w, y, false))) batched_linear(s, x, w, y);
}

void batched_linear_transposed_few(GpuStream s, const Tensor& x, std::span<const Weight> w,
                                   const Tensor& y) {
  if (!launch_turned(s, batched_problem(x, w, y, true))) batched_linear_transposed(s, x, w, y);
}

}  // namespace hadal::KL_TARGET
