// The KV compressor: a softmax over tokens for each channel, then norm, rotation and round trip.
#include "kernels/compress.h"

#include "kernels/cpu/element.h"
#include "kernels/cpu/exp.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/dispatch/kernels.h"

namespace hadal::cpu {
namespace {

struct Candidates {};
struct PoolRow {};
struct FinishedRows {};

// One token's contribution to an entry: Dc values and Dc gate logits.
struct Pooled {
  const float* u;
  const float* g;
};

// The tokens of entry j of sequence s, oldest first.
int64_t list_candidates(const Batch& b, const Compress& c, int64_t s, int64_t j, int64_t dc,
                        Pooled* out) {
  int64_t n = 0, half = c.overlap ? 2 * dc : dc;
  auto add = [&](int64_t first, int64_t offset) {
    for (int64_t p = first; p < first + c.ratio; ++p) {
      const float* row = history_row<float>(c.ring_ug, c.step_ug, b, s, p);
      out[n++] = {row + offset, row + half + offset};
    }
  };
  if (c.overlap && j > 0) add((j - 1) * c.ratio, 0);
  add(j * c.ratio, c.overlap ? dc : 0);
  return n;
}

// e[ch] = sum_i softmax_i(g_i[ch]) u_i[ch]
void pool(const Pooled* rows, int64_t n, int64_t dc, float* e) {
  float* buffer = scratch<float, PoolRow>(2 * dc);
  float *top = buffer, *den = buffer + dc;
  std::copy(rows[0].g, rows[0].g + dc, top);
  for (int64_t i = 1; i < n; ++i)
    for (int64_t ch = 0; ch < dc; ++ch) top[ch] = std::max(top[ch], rows[i].g[ch]);
  std::fill(den, den + dc, 0.0f);
  std::fill(e, e + dc, 0.0f);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t ch = 0; ch < dc; ++ch) {
      float w = exp_approx(rows[i].g[ch] - top[ch]);
      den[ch] += w;
      e[ch] += w * rows[i].u[ch];
    }
  for (int64_t ch = 0; ch < dc; ++ch) e[ch] /= den[ch];
}

// The steps after the pool, each rounded to the entries' dtype T, in fp32 storage.
template <class T>
void finish(const RowLoops<float>& loops, const Compress& c, const float* norm, int64_t j,
            int64_t dc, float* e) {
  auto round_all = [&](int64_t from) {
    for (int64_t i = from; i < dc; ++i) e[i] = rounded<T>(e[i]);
  };
  round_all(0);
  loops.rms(e, norm, c.eps, dc, e);
  round_all(0);
  int64_t half = c.freqs.shape[0], plain = dc - 2 * half;
  const float* freqs = c.freqs.at<const float>();
  float position = static_cast<float>(j * c.ratio);
  for (int64_t i = 0; i < half; ++i) {
    double angle = position * freqs[i];
    float cosine = static_cast<float>(std::cos(angle)), sine = static_cast<float>(std::sin(angle));
    float *a = e + plain + 2 * i, *b = a + 1, x = *a, y = *b;
    *a = x * cosine - y * sine;
    *b = x * sine + y * cosine;
  }
  round_all(plain);
  if (c.quant == Compress::Quant::kFp8) {
    loops.qdq_fp8(e, plain, 64);
  } else if (c.quant == Compress::Quant::kHadamardFp4) {
    loops.hadamard(e, dc, scratch<float, PoolRow>(dc));
    round_all(0);
    loops.qdq_fp4(e, dc);
  }
}

template <class T>
void compress_row(const RowLoops<float>& loops, const Batch& b, const Compress& c,
                  const float* norm, int64_t t) {
  int64_t s = b.sequence[t], j = b.positions[t] / c.ratio, dc = c.entries.shape[2];
  Pooled* rows = scratch<Pooled, Candidates>(2 * c.ratio);
  int64_t n = list_candidates(b, c, s, j, dc, rows);
  float* e = scratch<float, Candidates>(dc);
  pool(rows, n, dc, e);
  finish<T>(loops, c, norm, j, dc, e);
  T* out = entry<T>(c.entries, c.table, s, j);
  for (int64_t i = 0; i < dc; ++i) store(out[i], e[i]);
}

void check(const Batch& b, const Compress& c) {
  const char* op = "compress";
  int64_t dc = c.entries.shape[2], width = (c.overlap ? 4 : 2) * dc;
  expect_shape(op, "step_ug", c.step_ug, {b.rows, width});
  expect_dtype(op, "step_ug", c.step_ug, DType::kF32);
  if (!c.ring_ug.empty()) {
    expect_shape(op, "ring_ug", c.ring_ug, {c.ring_ug.shape[0], c.ring_ug.shape[1], width});
    expect_dtype(op, "ring_ug", c.ring_ug, DType::kF32);
  }
  expect_shape(op, "norm", c.norm, {dc});
  expect_shape(op, "entries", c.entries, {c.entries.shape[0], c.table.page_size, dc});
  expect_dtype(op, "freqs", c.freqs, DType::kF32);
  HADAL_CHECK(c.freqs.shape[0] * 2 <= dc && c.ratio >= 1,
              "[compress] freqs " + c.freqs.describe() + ", entries " + c.entries.describe());
}

}  // namespace

void compress(Context& ctx, const Batch& batch, const Compress& c) {
  check(batch, c);
  int64_t dc = c.entries.shape[2];
  int32_t* finished = scratch<int32_t, FinishedRows>(batch.rows);
  int64_t count = 0;
  for (int32_t t = 0; t < batch.rows; ++t)
    if ((batch.positions[t] + 1) % c.ratio == 0) finished[count++] = t;
  if (count == 0) return;
  float* norm = scratch<float, FinishedRows>(dc);
  with_weight("compress", c.norm.dtype, [&](auto type) {
    const auto* w = c.norm.at<const decltype(type)>();
    for (int64_t i = 0; i < dc; ++i) norm[i] = load(w[i]);
  });
  with_activation("compress", c.entries.dtype, [&](auto type) {
    using T = decltype(type);
    int64_t tokens = c.ratio * (c.overlap ? 2 : 1);
    ctx.threads.run(count, grain_of(dc * tokens * 4), [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i)
        compress_row<T>(ctx.kernels.rows->f32, batch, c, norm, finished[i]);
    });
  });
}

void compress_rows(Context& ctx, const Batch& batch, const Tensor& u, const Tensor& g,
                   const Tensor& ape, const Tensor& ug) {
  int64_t rows = batch.rows, w = u.shape[1], ratio = ape.shape[0];
  expect_shape("compress_rows", "u", u, {rows, w});
  expect_shape("compress_rows", "g", g, {rows, w});
  expect_shape("compress_rows", "ape", ape, {ratio, w});
  expect_shape("compress_rows", "ug", ug, {rows, 2 * w});
  for (const Tensor* t : {&u, &g, &ug}) expect_dtype("compress_rows", "u, g, ug", *t, DType::kF32);
  with_weight("compress_rows", ape.dtype, [&](auto type) {
    using W = decltype(type);
    ctx.threads.run(rows, grain_of(2 * w), [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        const float *from = u.at<const float>(t), *gate = g.at<const float>(t);
        const W* bias = ape.at<const W>(batch.positions[t] % ratio);
        float* out = ug.at<float>(t);
        std::copy(from, from + w, out);
        for (int64_t i = 0; i < w; ++i) out[w + i] = gate[i] + load(bias[i]);
      }
    });
  });
}

}  // namespace hadal::cpu
