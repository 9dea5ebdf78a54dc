// Rows into rings, pages and packed lists.
#include "kernels/copy.h"

#include <cstring>

#include "kernels/cpu/element.h"
#include "kernels/cpu/ops.h"

namespace hadal::cpu {

void ring_write(Context& ctx, const Batch& batch, const Tensor& step, const Tensor& ring) {
  int64_t d = step.shape[1], capacity = ring.shape[1];
  expect_shape("ring_write", "ring", ring, {ring.shape[0], capacity, d});
  expect_dtype("ring_write", "ring", ring, step.dtype);
  int64_t size = dtype_size(step.dtype);
  ctx.threads.run(batch.rows, grain_of(d), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      int64_t s = batch.sequence[t], p = batch.positions[t];
      if (batch.first_row[s + 1] - t > capacity) continue;  // a later row takes this slot
      int64_t to = batch.slot[s] * ring.stride[0] + p % capacity * ring.stride[1];
      std::memcpy(static_cast<char*>(ring.data) + to * size,
                  static_cast<const char*>(step.data) + t * step.stride[0] * size, d * size);
    }
  });
}

void page_write(Context& ctx, const Batch& batch, const Tensor& rows, const PageTable& table,
                const Tensor& pool) {
  int64_t d = rows.shape[1];
  expect_shape("page_write", "pool", pool, {pool.shape[0], table.page_size, d});
  expect_dtype("page_write", "pool", pool, rows.dtype);
  int64_t size = dtype_size(rows.dtype);
  ctx.threads.run(batch.rows, grain_of(d), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      int64_t s = batch.sequence[t], p = batch.positions[t];
      int64_t page = table.pages[s * table.stride + p / table.page_size];
      int64_t at = page * pool.stride[0] + p % table.page_size * pool.stride[1];
      std::memcpy(static_cast<char*>(pool.data) + at * size,
                  static_cast<const char*>(rows.data) + t * rows.stride[0] * size, d * size);
    }
  });
}

void gather_rows(Context& ctx, const Tensor& x, const int32_t* rows, int64_t n, const Tensor& out) {
  int64_t c = x.shape[1], size = dtype_size(x.dtype);
  expect_shape("gather_rows", "out", out, {out.shape[0], c});
  expect_dtype("gather_rows", "out", out, x.dtype);
  ctx.threads.run(n, grain_of(c), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(static_cast<char*>(out.data) + i * out.stride[0] * size,
                  static_cast<const char*>(x.data) + rows[i] * x.stride[0] * size, c * size);
  });
}

}  // namespace hadal::cpu
