// The KV compressor: one block per row; rows that finish no group leave once they know their
// position. Threads are teams side by side over the channels, each with every so manieth token of
// the group; their softmax parts are added in the order of the teams. The entry is finished in
// shared memory. Portable GPU kernels (kl.h); contract in kernels/compress.h.
#pragma once

#include "kernels/cpu/element.h"
#include "kernels/gpu/kl.h"
#include "kernels/gpu/launchers.h"
#include "kernels/gpu/row_quant.cu.h"
#include "kernels/gpu/vector16.cu.h"

namespace hadal::KL_TARGET {

inline constexpr int kCompressThreads = 512;
inline constexpr int kCompressRowsThreads = 128;

template <class T>
struct CompressArgs {
  Batch batch;
  View<float> step, ring;
  AnyVector norm;
  const float* freqs;
  View<T> entries;
  PageTable table;
  uint32_t step_pitch, ring_pitch;
  int capacity;      // of the ring, which holds all of an entry's tokens of earlier steps
  int width, half;   // Dc, R / 2
  int ratio, count;  // count: tokens that an entry pools
  int teams;         // team n pools tokens n, n + teams, ...
  bool overlap;
  Compress::Quant quant;
  float eps, hadamard_norm;
};

// Where the tokens of one entry lie, oldest first: with overlap the first `ratio` are those of the
// group before, which exists unless their positions are below 0.
template <class T>
struct CompressGroup {
  const float *step, *ring;  // rows of position `start` and of the sequence's slot
  int first, start;          // positions of token 0, and of the first token of this step
  int at;                    // row of token 0 in the ring
  T* out;
};

template <class T>
KL_DEVICE CompressGroup<T> compress_group(const CompressArgs<T>& a, int64_t t, uint32_t j) {
  int64_t s = a.batch.sequence[t];
  uint32_t size = static_cast<uint32_t>(a.table.page_size);
  int start = a.batch.start[s], row = a.batch.first_row[s], slot = a.batch.slot[s];
  int64_t page = a.table.pages[s * a.table.stride + j / size];
  int first = static_cast<int>(j) * a.ratio - (a.overlap ? a.ratio : 0);
  uint32_t capacity = static_cast<uint32_t>(a.capacity);
  int at =
      first < 0 ? first + a.capacity : static_cast<int>(static_cast<uint32_t>(first) % capacity);
  return {a.step.at(row), a.ring.at(slot), first, start, at, a.entries.at(page, j % size)};
}

// Softmax over some tokens of kWide channels: the largest gate, and the sums of the weights and of
// the weighted values relative to it.
template <int kWide>
struct CompressPart {
  float top[kWide], total[kWide], sum[kWide];
};

template <int kWide>
KL_DEVICE void compress_load(const float* p, float (&x)[kWide]) {
  if constexpr (kWide == 4) {
    Vector16 v = *vectors_at(p);
    unpack(v, x);
  } else {
    x[0] = *p;
  }
}

// exp(gate - top), where minus infinity stands for a token that is not there.
KL_DEVICE float compress_weight(float gate, float top) {
  return gate == -kl::infinity() ? 0.0f : kl::exp_accurate(gate - top);
}

// The team's tokens of channels c and on, kDepth of them loaded together.
template <int kWide, int kDepth, class T>
KL_DEVICE CompressPart<kWide> compress_pool(const CompressArgs<T>& a, const CompressGroup<T>& g,
                                            int team, int c) {
  CompressPart<kWide> p;
  KL_UNROLL
  for (int k = 0; k < kWide; ++k) p.top[k] = -kl::infinity(), p.total[k] = p.sum[k] = 0;
  int gates = a.overlap ? 2 * a.width : a.width;
  for (int n = team; n < a.count; n += kDepth * a.teams) {
    float gate[kDepth][kWide], value[kDepth][kWide];
    KL_UNROLL
    for (int i = 0; i < kDepth; ++i) {
      int token = n + i * a.teams, position = g.first + token;
      KL_UNROLL
      for (int k = 0; k < kWide; ++k) gate[i][k] = -kl::infinity(), value[i][k] = 0;
      if (token >= a.count || position < 0) continue;
      bool now = position >= g.start;
      int in_ring = g.at + token < a.capacity ? g.at + token : g.at + token - a.capacity;
      uint32_t index = static_cast<uint32_t>(now ? position - g.start : in_ring);
      const float* row = now ? g.step : g.ring;
      row += uint64_t{index} * (now ? a.step_pitch : a.ring_pitch);
      row += c + (a.overlap && token >= a.ratio ? a.width : 0);
      compress_load(row + gates, gate[i]);
      compress_load(row, value[i]);
    }
    float top[kWide];
    KL_UNROLL
    for (int k = 0; k < kWide; ++k) {
      top[k] = p.top[k];
      KL_UNROLL
      for (int i = 0; i < kDepth; ++i) top[k] = kl::max_of(top[k], gate[i][k]);
      float scale = compress_weight(p.top[k], top[k]);
      p.top[k] = top[k], p.total[k] *= scale, p.sum[k] *= scale;
    }
    KL_UNROLL
    for (int i = 0; i < kDepth; ++i) {
      if (n + i * a.teams >= a.count) continue;
      KL_UNROLL
      for (int k = 0; k < kWide; ++k) {
        float w = compress_weight(gate[i][k], top[k]);
        p.total[k] += w;
        p.sum[k] += w * value[i][k];
      }
    }
  }
  return p;
}

// e: per channel the softmax-weighted mean, rounded to T. parts: [teams][3][width] numbers, not
// used by a single team. To be read by thread c % threads, for channel c, until the next barrier.
template <int kWide, int kDepth, class T>
KL_DEVICE void compress_mean(const CompressArgs<T>& a, const CompressGroup<T>& g, float* e,
                             float* parts) {
  int units = a.width / kWide, team = a.teams > 1 ? kl::thread() / units : 0;
  for (int u = kl::thread() - team * units; team < a.teams && u < units; u += kl::threads()) {
    CompressPart<kWide> p = compress_pool<kWide, kDepth>(a, g, team, u * kWide);
    float* to = parts + team * 3 * a.width + u * kWide;
    KL_UNROLL
    for (int k = 0; k < kWide; ++k) {
      if (a.teams == 1) {
        e[u * kWide + k] = rounded_to<T>(p.sum[k] / p.total[k]);
      } else {
        to[k] = p.top[k], to[a.width + k] = p.total[k], to[2 * a.width + k] = p.sum[k];
      }
    }
  }
  kl::sync();
  if (a.teams == 1) return;
  for (int c = kl::thread(); c < a.width; c += kl::threads()) {
    float top = -kl::infinity(), total = 0, sum = 0;
    for (int n = 0; n < a.teams; ++n) top = kl::max_of(top, parts[n * 3 * a.width + c]);
    KL_UNROLL_BY(4)
    for (int n = 0; n < a.teams; ++n) {
      const float* part = parts + n * 3 * a.width + c;
      float scale = compress_weight(part[0], top);
      total += part[a.width] * scale;
      sum += part[2 * a.width] * scale;
    }
    e[c] = rounded_to<T>(sum / total);
  }
}

struct CompressTurn {
  float cosine, sine;
};

KL_DEVICE CompressTurn compress_turn(float position, float freq) {
  double cosine, sine;
  sincos(double{position * freq}, &sine, &cosine);
  return {static_cast<float>(cosine), static_cast<float>(sine)};
}

// Norm and rotation of the last 2 * half channels, each rounded to T. weight: the norm's of channel
// `thread`; turn: of pair `thread` counted from the block's last thread.
template <class T>
KL_DEVICE void compress_rotate(const CompressArgs<T>& a, float position, float weight,
                               CompressTurn turn, float* e) {
  float squares = 0;
  for (int c = kl::thread(); c < a.width; c += kl::threads()) squares += e[c] * e[c];
  squares = kl::block_sum(squares);
  float factor = 1.0f / sqrtf(squares / static_cast<float>(a.width) + a.eps);
  for (int c = kl::thread(); c < a.width; c += kl::threads()) {
    e[c] = rounded_to<T>(e[c] * factor * weight);
    if (c + kl::threads() < a.width) weight = a.norm[c + kl::threads()];
  }
  kl::sync();
  for (int i = kl::threads() - 1 - kl::thread(); i < a.half; i += kl::threads()) {
    float* pair = e + a.width - 2 * a.half + 2 * i;
    float x = pair[0], y = pair[1];
    pair[0] = rounded_to<T>(x * turn.cosine - y * turn.sine);
    pair[1] = rounded_to<T>(x * turn.sine + y * turn.cosine);
    if (i + kl::threads() < a.half) turn = compress_turn(position, a.freqs[i + kl::threads()]);
  }
  kl::sync();
}

// Round trips of channels [0, n) in blocks, one warp per block.
KL_DEVICE void compress_round_trip(float* e, int n, int block, bool fp4) {
  for (int first = kl::warp() * block; first < n; first += kl::warps() * block) {
    int end = first + block < n ? first + block : n;
    float amax = 0;
    for (int c = first + kl::lane(); c < end; c += kl::warp_size()) amax = amax_of(amax, e[c]);
    amax = kl::warp_max(amax);
    float scale = fp4 ? fp4_block_scale(amax) : fp8_block_scale(amax, true);
    for (int c = first + kl::lane(); c < end; c += kl::warp_size())
      e[c] = fp4 ? fp4_round_trip(e[c], scale) : fp8_round_trip(e[c], scale);
  }
  kl::sync();
}

// e <- H e * norm, rounded to T, for a power of two of channels: the sums of hadamard_shared, those
// between the channels of a warp by exchange.
template <class T>
KL_DEVICE void compress_hadamard(float* e, int width, float norm) {
  for (int first = kl::warp() * kl::warp_size(); first < width; first += kl::threads()) {
    int c = first + kl::lane();
    float v = c < width ? e[c] : 0.0f;
    for (int half = 1; half < kl::warp_size() && half < width; half *= 2) {
      float other = kl::shfl_xor(v, half);
      v = c & half ? other - v : v + other;
    }
    if (c < width) e[c] = v;
  }
  kl::sync();
  int bits = 0;
  while (1 << bits < kl::warp_size()) ++bits;
  for (; 1 << bits < width; ++bits) {
    for (int i = kl::thread(); i < width / 2; i += kl::threads()) {
      int half = 1 << bits, low = i >> bits << (bits + 1) | (i & (half - 1));
      float p = e[low], q = e[low + half];
      e[low] = p + q;
      e[low + half] = p - q;
    }
    kl::sync();
  }
  for (int c = kl::thread(); c < width; c += kl::threads()) e[c] = rounded_to<T>(e[c] * norm);
  kl::sync();
}

// limits: vgprs 200, lds 128
template <class T, int kWide, int kDepth, int kBlocks>
KL_KERNEL(kCompressThreads, kBlocks)
compress_kernel(CompressArgs<T> a) {
  KL_DYNAMIC_SHARED(float, e);  // [width], then the teams' parts
  for (int64_t t = kl::block(); t < a.batch.rows; t += kl::blocks()) {
    uint32_t ratio = static_cast<uint32_t>(a.ratio);
    uint32_t p = static_cast<uint32_t>(a.batch.positions[t]), j = p / ratio;
    if (p + 1 != (j + 1) * ratio) continue;
    CompressGroup<T> g = compress_group(a, t, j);
    // What the end needs is asked for before the tokens, so that nothing is waited for twice.
    int pair = kl::threads() - 1 - kl::thread();
    float position = static_cast<float>(j * ratio);
    float weight = kl::thread() < a.width ? a.norm[kl::thread()] : 0.0f;
    float freq = pair < a.half ? a.freqs[pair] : 0.0f;
    compress_mean<kWide, kDepth>(a, g, e, e + a.width);
    CompressTurn turn = {};
    if (pair < a.half) turn = compress_turn(position, freq);
    compress_rotate(a, position, weight, turn, e);
    if (a.quant == Compress::Quant::kFp8) {
      compress_round_trip(e, a.width - 2 * a.half, 64, false);
    } else if (a.quant == Compress::Quant::kHadamardFp4) {
      compress_hadamard<T>(e, a.width, a.hadamard_norm);
      compress_round_trip(e, a.width, kFp4Block, true);
    }
    for (int c = kl::thread(); c < a.width; c += kl::threads()) store(g.out[c], e[c]);
    kl::sync();  // the next row overwrites e
  }
}

struct CompressRowsArgs {
  const int32_t* positions;
  View<float> u, g, out;
  AnyVector ape;
  int64_t pitch, rows;
  uint32_t width, ratio, across;  // across: blocks side by side over a row
};

// limits: vgprs 64, lds 0
KL_KERNEL(kCompressRowsThreads) compress_rows_kernel(CompressRowsArgs a) {
  int64_t tiles = a.rows * a.across;
  for (int64_t n = kl::block(); n < tiles; n += kl::blocks()) {
    uint32_t t = static_cast<uint32_t>(n) / a.across;
    uint32_t c = (static_cast<uint32_t>(n) - t * a.across) * kCompressRowsThreads + kl::thread();
    if (c >= a.width) continue;
    uint32_t phase = static_cast<uint32_t>(a.positions[t]) % a.ratio;
    *a.out.at(t, c) = *a.u.at(t, c);
    *a.out.at(t, a.width + c) = *a.g.at(t, c) + a.ape[phase * a.pitch + c];
  }
}

// A thread with few tokens takes the kernel with few registers, so that two blocks share a
// multiprocessor.
template <class T, int kWide>
void launch_compress(GpuStream s, CompressArgs<T> a) {
  int units = a.width / kWide, fit = kCompressThreads / units;
  a.teams = fit < 1 ? 1 : fit < a.count ? fit : a.count;
  int64_t shared = a.width * (a.teams > 1 ? 1 + 3 * a.teams : 1) * int64_t{sizeof(float)};
  kl::Grid grid = {kl::grid(s, a.batch.rows)};
  if (a.count <= 2 * a.teams) {
    kl::launch(compress_kernel < T, kWide, 2, sizeof(T) == 2 ? 2 : 1 >, grid, kCompressThreads,
               shared, s, a);
  } else {
    kl::launch(compress_kernel<T, kWide, 8, 1>, grid, kCompressThreads, shared, s, a);
  }
}

void compress(GpuStream s, const Batch& batch, const Compress& c) {
  const char* op = "compress";
  int64_t dc = c.entries.shape[2], width = (c.overlap ? 4 : 2) * dc;
  expect_shape(op, "step_ug", c.step_ug, {batch.rows, width});
  expect_dtype(op, "step_ug", c.step_ug, DType::kF32);
  expect_shape(op, "norm", c.norm, {dc});
  expect_shape(op, "entries", c.entries, {c.entries.shape[0], c.table.page_size, dc});
  bool hadamard = c.quant == Compress::Quant::kHadamardFp4;
  HADAL_CHECK(c.freqs.shape[0] * 2 <= dc && c.ratio >= 1 && dc <= 8192 &&
                  (!hadamard || (dc % kFp4Block == 0 && (dc & (dc - 1)) == 0)),
              "[compress] freqs " + c.freqs.describe() + ", entries " + c.entries.describe());
  with_activation(op, c.entries.dtype, [&](auto type) {
    using T = decltype(type);
    CompressArgs<T> a = {};
    a.batch = batch;
    a.step = view<float>(c.step_ug);
    a.ring = view<float>(c.ring_ug);
    a.step_pitch = static_cast<uint32_t>(a.step.s0);
    a.ring_pitch = static_cast<uint32_t>(a.ring.s1);
    a.capacity = static_cast<int>(c.ring_ug.shape[1]);
    a.norm = any_vector(c.norm);
    a.freqs = c.freqs.at<const float>();
    a.entries = view<T>(c.entries);
    a.table = c.table;
    a.width = static_cast<int>(dc);
    a.half = static_cast<int>(c.freqs.shape[0]);
    a.ratio = c.ratio;
    a.count = c.overlap ? 2 * c.ratio : c.ratio;
    a.overlap = c.overlap;
    a.quant = c.quant;
    a.eps = c.eps;
    a.hadamard_norm = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dc)));
    if (dc % 4 == 0 && rows_of_vectors(c.step_ug) && rows_of_vectors(c.ring_ug)) {
      launch_compress<T, 4>(s, a);
    } else {
      launch_compress<T, 1>(s, a);
    }
  });
}

void compress_rows(GpuStream s, const Batch& batch, const Tensor& u, const Tensor& g,
                   const Tensor& ape, const Tensor& ug) {
  int64_t rows = batch.rows, w = u.shape[1], ratio = ape.shape[0];
  expect_shape("compress_rows", "u", u, {rows, w});
  expect_shape("compress_rows", "g", g, {rows, w});
  expect_shape("compress_rows", "ape", ape, {ratio, w});
  expect_shape("compress_rows", "ug", ug, {rows, 2 * w});
  for (const Tensor* t : {&u, &g, &ug}) expect_dtype("compress_rows", "u, g, ug", *t, DType::kF32);
  int64_t across = (w + kCompressRowsThreads - 1) / kCompressRowsThreads;
  HADAL_CHECK(rows * across < int64_t{1} << 31, "[compress_rows] u " + u.describe());
  CompressRowsArgs a = {};
  a.positions = batch.positions;
  a.u = view<float>(u);
  a.g = view<float>(g);
  a.out = view<float>(ug);
  a.ape = any_vector(ape);
  a.pitch = ape.stride[0];
  a.rows = rows;
  a.width = static_cast<uint32_t>(w);
  a.ratio = static_cast<uint32_t>(ratio);
  a.across = static_cast<uint32_t>(across);
  kl::launch(compress_rows_kernel, {kl::grid(s, rows * across)}, kCompressRowsThreads, 0, s, a);
}

}  // namespace hadal::KL_TARGET
