// Matrix products in plain loops: one row of W is decoded to fp32 and multiplied with every row of
// x. Scratch: thread-local buffers that only grow (a row of W per worker, x in fp32 per caller).
#include "kernels/cpu/ref_linear.h"

#include <algorithm>

namespace hadal {
namespace {

// fp32 rows of x. FP8 activations stay codes here: their scale multiplies block sums.
struct Rows {
  const float* data;
  int64_t k;
  const float* row(int64_t m) const { return data + m * k; }
};

float* grow(std::vector<float>& buffer, int64_t size) {
  if (static_cast<int64_t>(buffer.size()) < size) buffer.resize(size);
  return buffer.data();
}

// Row n of a weight or an activation as fp32, without block scales.
void decode_codes(const Tensor& t, int64_t n, int64_t columns, bool fp4, float* out) {
  switch (t.dtype) {
    case DType::kF32:
      std::copy_n(t.at<const float>(n), columns, out);
      break;
    case DType::kBF16:
      for (int64_t k = 0; k < columns; ++k) out[k] = bf16_to_f32(t.at<const BF16>(n)[k]);
      break;
    case DType::kF16:
      for (int64_t k = 0; k < columns; ++k) out[k] = f16_to_f32(t.at<const uint16_t>(n)[k]);
      break;
    case DType::kF8E4M3:
      for (int64_t k = 0; k < columns; ++k) out[k] = e4m3_to_f32(t.at<const uint8_t>(n)[k]);
      break;
    default:
      HADAL_CHECK(fp4, "[linear] operand " + t.describe() + " has no decoder");
      for (int64_t k = 0; k < columns; ++k) {
        uint8_t byte = t.at<const uint8_t>(n)[k / 2];
        out[k] = kE2M1[k % 2 ? byte >> 4 : byte & 15];
      }
  }
}

int64_t block_of(const Weight& w) { return w.fp4() ? kFp4Block : kFp8Block; }

float block_scale(const Weight& w, int64_t n, int64_t b) {
  if (w.fp8()) return fp8_scale(w, n, b);
  return w.fp4() ? e8m0_to_f32(*w.scale.at<const uint8_t>(n, b)) : 1.0f;
}

// Row n of W, codes (`scaled` false) or values.
void decode_weight(const Weight& w, int64_t n, bool scaled, float* out) {
  int64_t columns = w.k(), block = block_of(w);
  decode_codes(w.data, n, columns, w.fp4(), out);
  if (!scaled || !(w.fp8() || w.fp4())) return;
  for (int64_t k = 0; k < columns; k += block) {
    float s = block_scale(w, n, k / block);
    for (int64_t i = k; i < std::min(columns, k + block); ++i) out[i] *= s;
  }
}

Rows decode_rows(const Tensor& x, int64_t rows, int64_t columns) {
  thread_local std::vector<float> buffer;
  float* out = grow(buffer, rows * columns);
  for (int64_t m = 0; m < rows; ++m) decode_codes(x, m, columns, false, out + m * columns);
  return {out, columns};
}

// Eight partial sums: fixed order, and compilers turn them into vectors.
float dot(const float* a, const float* b, int64_t n) {
  float s[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int j = 0; j < 8; ++j) s[j] += a[i + j] * b[i + j];
  for (; i < n; ++i) s[i % 8] += a[i] * b[i];
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

// sum over blocks of (sum q w) * (scale_x * scale_w); `scale_x` counts 128-column blocks.
float dot_blocks(const float* q, const float* codes, const Weight& w, int64_t n,
                 const float* scale_x) {
  int64_t columns = w.k(), block = block_of(w);
  float sum = 0;
  for (int64_t k = 0; k < columns; k += block) {
    float p = dot(q + k, codes + k, std::min(block, columns - k));
    sum += p * (scale_x[k / kFp8Block] * block_scale(w, n, k / block));
  }
  return sum;
}

void put(const Tensor& y, int64_t m, int64_t n, float v) {
  if (y.dtype == DType::kF32)
    *y.at<float>(m, n) = v;
  else
    store(*y.at<BF16>(m, n), v);
}

// Rows [begin, end) of W times rows [first, last) of the output; row i of y uses x row rows[i].
struct Product {
  Rows x;
  const Tensor* scale_x;  // null: values, not codes
  const int32_t* rows;    // null: row i of y is row i of x
  Tensor y;
  int64_t first, last;
};

void multiply(const Product& p, const Weight& w, int64_t begin, int64_t end) {
  thread_local std::vector<float> buffer;
  float* row = grow(buffer, w.k());
  for (int64_t n = begin; n < end; ++n) {
    decode_weight(w, n, !p.scale_x, row);
    for (int64_t i = p.first; i < p.last; ++i) {
      int64_t m = p.rows ? p.rows[i] : i;
      float v = p.scale_x ? dot_blocks(p.x.row(m), row, w, n, p.scale_x->at<const float>(m))
                          : dot(p.x.row(m), row, w.k());
      put(p.y, i, n, v);
    }
  }
}

}  // namespace

void ref_linear(Context& ctx, const Activation& x, const Weight& w, const Tensor& y) {
  int64_t rows = x.data.shape[0];
  const Tensor* scale = x.data.dtype == DType::kF8E4M3 ? &x.scale : nullptr;
  Product p{decode_rows(x.data, rows, w.k()), scale, nullptr, y, 0, rows};
  ctx.threads.run(w.n(), 1, [&](int64_t b, int64_t e, int) { multiply(p, w, b, e); });
}

void ref_grouped_linear(Context& ctx, const Activation& x, const int32_t* rows,
                        const int32_t* offsets, std::span<const Weight> experts, const Tensor& y) {
  const Tensor* scale = x.data.dtype == DType::kF8E4M3 ? &x.scale : nullptr;
  int64_t n = y.shape[1], k = x.data.shape[1], count = static_cast<int64_t>(experts.size());
  Product all{decode_rows(x.data, x.data.shape[0], k), scale, rows, y, 0, 0};
  ctx.threads.run(count * n, 1, [&](int64_t b, int64_t e, int) {
    for (int64_t expert = b / n; expert * n < e; ++expert) {
      Product p = all;
      p.first = offsets[expert];
      p.last = offsets[expert + 1];
      if (p.first == p.last) continue;
      multiply(p, experts[expert], std::max(b - expert * n, int64_t{0}),
               std::min(e - expert * n, n));
    }
  });
}

void ref_batched_linear(Context& ctx, const Tensor& x, std::span<const Weight> w, const Tensor& y) {
  int64_t rows = x.shape[0], groups = x.shape[1], n = w[0].n(), k = w[0].k();
  thread_local std::vector<float> buffer;
  float* data = grow(buffer, groups * rows * k);
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t m = 0; m < rows; ++m) {
      Tensor one = x.slice(1, g, g + 1);
      decode_codes(one, m, k, false, data + (g * rows + m) * k);
    }
  ctx.threads.run(groups * n, 1, [&](int64_t b, int64_t e, int) {
    for (int64_t g = b / n; g * n < e; ++g) {
      Tensor cut = y.slice(1, g, g + 1);
      cut.stride[1] = y.stride[2];
      Product p{{data + g * rows * k, k}, nullptr, nullptr, cut, 0, rows};
      multiply(p, w[g], std::max(b - g * n, int64_t{0}), std::min(e - g * n, n));
    }
  });
}

void ref_batched_linear_transposed(Context& ctx, const Tensor& x, std::span<const Weight> w,
                                   const Tensor& y) {
  int64_t rows = x.shape[0], groups = x.shape[1], n = w[0].n(), k = w[0].k();
  ctx.threads.run(groups, 1, [&](int64_t begin, int64_t end, int) {
    thread_local std::vector<float> buffer;
    float* row = grow(buffer, (rows + 1) * k);
    for (int64_t g = begin; g < end; ++g) {
      float* sums = row + k;
      std::fill_n(sums, rows * k, 0.0f);
      for (int64_t i = 0; i < n; ++i) {
        decode_weight(w[g], i, true, row);
        for (int64_t m = 0; m < rows; ++m) {
          float v = x.dtype == DType::kF32 ? *x.at<const float>(m, g, i)
                                           : bf16_to_f32(*x.at<const BF16>(m, g, i));
          for (int64_t j = 0; j < k; ++j) sums[m * k + j] += v * row[j];
        }
      }
      Tensor cut = y.slice(1, g, g + 1);
      cut.stride[1] = y.stride[2];
      for (int64_t m = 0; m < rows; ++m)
        for (int64_t j = 0; j < k; ++j) put(cut, m, j, sums[m * k + j]);
    }
  });
}

}  // namespace hadal
