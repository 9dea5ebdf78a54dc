// Rows into rings, pages and packed lists: one warp per row, in units as wide as all addresses
// allow. Portable GPU kernels (kl.h); contract in kernels/copy.h.
#pragma once

#include "kernels/copy.h"
#include "kernels/cpu/element.h"
#include "kernels/gpu/kl.h"
#include "kernels/gpu/launchers.h"

namespace hadal::KL_TARGET {

inline constexpr int kCopyThreads = 256;

enum class CopyTo { kRing, kPage, kList };

struct alignas(16) Bytes16 {
  uint32_t word[4];
};

// Strides and columns in units of U.
template <class U>
struct CopyArgs {
  const U* from;
  U* to;
  int64_t from_row, to_outer, to_inner;  // to_inner: from one row of a ring or page to the next
  int64_t rows, columns, capacity;
  Batch batch;
  PageTable table;
  const int32_t* list;
  CopyTo where;
};

// Where row t goes, or null where a later row takes its place.
template <class U>
KL_DEVICE U* copy_target(const CopyArgs<U>& a, int64_t t) {
  if (a.where == CopyTo::kList) return a.to + t * a.to_outer;
  int64_t s = a.batch.sequence[t], p = a.batch.positions[t];
  if (a.where == CopyTo::kPage) {
    int64_t page = a.table.pages[s * a.table.stride + p / a.table.page_size];
    return a.to + page * a.to_outer + p % a.table.page_size * a.to_inner;
  }
  if (a.batch.first_row[s + 1] - t > a.capacity) return nullptr;
  return a.to + a.batch.slot[s] * a.to_outer + p % a.capacity * a.to_inner;
}

// limits: vgprs 64, lds 0
template <class U>
KL_KERNEL(kCopyThreads)
copy_kernel(CopyArgs<U> a) {
  int64_t step = kl::blocks() * kl::warps();
  for (int64_t t = kl::block() * kl::warps() + kl::warp(); t < a.rows; t += step) {
    U* to = copy_target(a, t);
    if (!to) continue;
    const U* from = a.from + (a.where == CopyTo::kList ? a.list[t] : t) * a.from_row;
    for (int64_t c = kl::lane(); c < a.columns; c += kl::warp_size()) to[c] = from[c];
  }
}

struct CopyPlan {
  Tensor from, to;
  int64_t rows = 0;
  const int32_t* list = nullptr;
  CopyTo where = CopyTo::kList;
};

template <class U>
bool launch_copy(GpuStream s, const CopyPlan& p, const Batch& batch, const PageTable& table) {
  int64_t size = dtype_size(p.from.dtype), unit = sizeof(U);
  int64_t inner = p.where == CopyTo::kList ? 0 : p.to.stride[1];
  for (int64_t n : {p.from.stride[0], p.to.stride[0], inner, p.from.shape[1]})
    if (n * size % unit) return false;
  for (void* address : {p.from.data, p.to.data})
    if (reinterpret_cast<uintptr_t>(address) % unit) return false;
  CopyArgs<U> a = {};
  a.from = static_cast<const U*>(p.from.data);
  a.to = static_cast<U*>(p.to.data);
  a.from_row = p.from.stride[0] * size / unit;
  a.to_outer = p.to.stride[0] * size / unit;
  a.to_inner = inner * size / unit;
  a.rows = p.rows;
  a.columns = p.from.shape[1] * size / unit;
  a.capacity = p.where == CopyTo::kRing ? p.to.shape[1] : 0;
  a.batch = batch;
  a.table = table;
  a.list = p.list;
  a.where = p.where;
  kl::launch(copy_kernel<U>, {kl::grid(s, (p.rows + 3) / 4)}, kCopyThreads, 0, s, a);
  return true;
}

inline void copy_rows(GpuStream s, const CopyPlan& p, const Batch& batch, const PageTable& table) {
  if (launch_copy<Bytes16>(s, p, batch, table)) return;
  if (launch_copy<uint32_t>(s, p, batch, table)) return;
  if (launch_copy<uint16_t>(s, p, batch, table)) return;
  launch_copy<uint8_t>(s, p, batch, table);
}

void ring_write(GpuStream s, const Batch& batch, const Tensor& step, const Tensor& ring) {
  expect_shape("ring_write", "ring", ring, {ring.shape[0], ring.shape[1], step.shape[1]});
  expect_dtype("ring_write", "ring", ring, step.dtype);
  copy_rows(s, {step, ring, batch.rows, nullptr, CopyTo::kRing}, batch, {});
}

void page_write(GpuStream s, const Batch& batch, const Tensor& rows, const PageTable& table,
                const Tensor& pool) {
  expect_shape("page_write", "pool", pool, {pool.shape[0], table.page_size, rows.shape[1]});
  expect_dtype("page_write", "pool", pool, rows.dtype);
  copy_rows(s, {rows, pool, batch.rows, nullptr, CopyTo::kPage}, batch, table);
}

void gather_rows(GpuStream s, const Tensor& x, const int32_t* rows, int64_t n, const Tensor& out) {
  expect_shape("gather_rows", "out", out, {out.shape[0], x.shape[1]});
  expect_dtype("gather_rows", "out", out, x.dtype);
  copy_rows(s, {x, out, n, rows, CopyTo::kList}, {}, {});
}

}  // namespace hadal::KL_TARGET
