// The KV compressor: one block per row; rows that finish no group leave at once. The entry is made
// in shared memory. Portable GPU kernels (kl.h); contract in kernels/compress.h.
#pragma once

#include "kernels/cpu/element.h"
#include "kernels/gpu/batch.cu.h"
#include "kernels/gpu/kl.h"
#include "kernels/gpu/launchers.h"
#include "kernels/gpu/row_quant.cu.h"

namespace hadal::KL_TARGET {

inline constexpr int kCompressThreads = 128;

template <class T>
struct CompressArgs {
  Batch batch;
  View<float> step, ring;
  int64_t capacity;  // of the ring
  AnyVector norm;
  const float* freqs;
  View<T> entries;
  PageTable table;
  int64_t width, half;  // Dc, R / 2
  int ratio;
  bool overlap;
  Compress::Quant quant;
  float eps, hadamard_norm;
};

// Token n of the group, oldest first: with overlap the first `ratio` are those of the group before.
// Null where that group does not exist.
template <class T>
KL_DEVICE const float* compress_row(const CompressArgs<T>& a, int64_t s, int64_t j, int n) {
  int64_t p = j * a.ratio + n - (a.overlap ? a.ratio : 0);
  if (p < 0) return nullptr;
  int64_t offset = a.overlap && n >= a.ratio ? a.width : 0;
  return history_address(a.ring, a.capacity, a.step, a.batch, s, p) + offset;
}

// Per channel the softmax-weighted sum over the group, rounded to T.
template <class T>
KL_DEVICE void compress_pool(const CompressArgs<T>& a, int64_t s, int64_t j, float* e) {
  int count = a.overlap ? 2 * a.ratio : a.ratio;
  int64_t gate = a.overlap ? 2 * a.width : a.width;
  for (int64_t c = kl::thread(); c < a.width; c += kl::threads()) {
    float top = -kl::infinity(), sum = 0, total = 0;
    for (int n = 0; n < count; ++n)
      if (const float* row = compress_row(a, s, j, n)) top = kl::max_of(top, row[gate + c]);
    for (int n = 0; n < count; ++n) {
      const float* row = compress_row(a, s, j, n);
      if (!row) continue;
      float w = kl::exp_accurate(row[gate + c] - top);
      total += w;
      sum += w * row[c];
    }
    e[c] = rounded_to<T>(sum / total);
  }
}

// Norm and rotation of the last 2 * half channels, each rounded to T.
template <class T>
KL_DEVICE void compress_rotate(const CompressArgs<T>& a, int64_t j, float* e) {
  float squares = 0;
  for (int64_t c = kl::thread(); c < a.width; c += kl::threads()) squares += e[c] * e[c];
  squares = kl::block_sum(squares);
  float factor = 1.0f / sqrtf(squares / static_cast<float>(a.width) + a.eps);
  for (int64_t c = kl::thread(); c < a.width; c += kl::threads())
    e[c] = rounded_to<T>(e[c] * factor * a.norm[c]);
  kl::sync();
  for (int64_t i = kl::thread(); i < a.half; i += kl::threads()) {
    double angle = static_cast<float>(j * a.ratio) * a.freqs[i];
    float c = static_cast<float>(cos(angle)), s = static_cast<float>(sin(angle));
    float* pair = e + a.width - 2 * a.half + 2 * i;
    float x = pair[0], y = pair[1];
    pair[0] = rounded_to<T>(x * c - y * s);
    pair[1] = rounded_to<T>(x * s + y * c);
  }
  kl::sync();
}

// Round trips of channels [0, n) in blocks, one warp per block.
KL_DEVICE void compress_round_trip(float* e, int64_t n, int64_t block, bool fp4) {
  for (int64_t first = kl::warp() * block; first < n; first += kl::warps() * block) {
    int64_t end = first + block < n ? first + block : n;
    float amax = 0;
    for (int64_t c = first + kl::lane(); c < end; c += kl::warp_size()) amax = amax_of(amax, e[c]);
    amax = kl::warp_max(amax);
    float scale = fp4 ? fp4_block_scale(amax) : fp8_block_scale(amax, true);
    for (int64_t c = first + kl::lane(); c < end; c += kl::warp_size())
      e[c] = fp4 ? fp4_round_trip(e[c], scale) : fp8_round_trip(e[c], scale);
  }
  kl::sync();
}

// limits: vgprs 128, lds 256
template <class T>
KL_KERNEL(kCompressThreads)
compress_kernel(CompressArgs<T> a) {
  KL_DYNAMIC_SHARED(float, e);
  for (int64_t t = kl::block(); t < a.batch.rows; t += kl::blocks()) {
    int64_t s = a.batch.sequence[t], p = a.batch.positions[t], j = p / a.ratio;
    if ((p + 1) % a.ratio != 0) continue;
    compress_pool(a, s, j, e);
    kl::sync();
    compress_rotate(a, j, e);
    if (a.quant == Compress::Quant::kFp8) {
      compress_round_trip(e, a.width - 2 * a.half, 64, false);
    } else if (a.quant == Compress::Quant::kHadamardFp4) {
      hadamard_shared(e, a.width);
      for (int64_t c = kl::thread(); c < a.width; c += kl::threads())
        e[c] = rounded_to<T>(e[c] * a.hadamard_norm);
      kl::sync();
      compress_round_trip(e, a.width, kFp4Block, true);
    }
    T* out = entry_address(a.entries, a.table, s, j);
    for (int64_t c = kl::thread(); c < a.width; c += kl::threads()) store(out[c], e[c]);
    kl::sync();  // the next row overwrites e
  }
}

struct CompressRowsArgs {
  const int32_t* positions;
  View<float> u, g, out;
  AnyVector ape;
  int64_t pitch, rows, width, ratio;
};

// limits: vgprs 64, lds 0
KL_KERNEL(kCompressThreads) compress_rows_kernel(CompressRowsArgs a) {
  int64_t step = kl::blocks() * kl::threads();
  for (int64_t n = kl::block() * kl::threads() + kl::thread(); n < a.rows * a.width; n += step) {
    int64_t t = n / a.width, c = n % a.width;
    *a.out.at(t, c) = *a.u.at(t, c);
    *a.out.at(t, a.width + c) = *a.g.at(t, c) + a.ape[a.positions[t] % a.ratio * a.pitch + c];
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
    a.capacity = c.ring_ug.shape[1];
    a.norm = any_vector(c.norm);
    a.freqs = c.freqs.at<const float>();
    a.entries = view<T>(c.entries);
    a.table = c.table;
    a.width = dc;
    a.half = c.freqs.shape[0];
    a.ratio = c.ratio;
    a.overlap = c.overlap;
    a.quant = c.quant;
    a.eps = c.eps;
    a.hadamard_norm = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dc)));
    kl::launch(compress_kernel<T>, {kl::grid(s, batch.rows)}, kCompressThreads, dc * 4, s, a);
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
  int64_t blocks = (rows * w + kCompressThreads - 1) / kCompressThreads;
  kl::launch(compress_rows_kernel, {kl::grid(s, blocks)}, kCompressThreads, 0, s,
             CompressRowsArgs{batch.positions, view<float>(u), view<float>(g), view<float>(ug),
                              any_vector(ape), ape.stride[0], rows, w, ratio});
}

}  // namespace hadal::KL_TARGET
