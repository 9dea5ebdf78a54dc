// Rows into rings, pages and packed lists, in units as wide as all addresses allow: a team of
// threads per row, and for long rows several blocks side by side, so that few rows are copied by
// many threads at once. Portable GPU kernels (kl.h); contract in kernels/copy.h.
#pragma once

#include "kernels/copy.h"
#include "kernels/cpu/element.h"
#include "kernels/gpu/kl.h"
#include "kernels/gpu/launchers.h"
#include "kernels/gpu/vector16.cu.h"

namespace hadal::KL_TARGET {

inline constexpr int kCopyThreads = 256;
inline constexpr int kCopyUnits = 4;           // that a thread loads at once
inline constexpr int64_t kCopyMany = 1 << 18;  // units from which on a thread takes so many

enum class CopyTo { kRing, kPage, kList };

template <class U>
KL_DEVICE U words_of(const U& v) {
  return v;
}

// Strides and columns in units of U.
template <class U>
struct CopyArgs {
  const U* from;
  U* to;
  int64_t from_row, to_outer, to_inner;  // to_inner: from one row of a ring or page to the next
  uint32_t rows, columns, capacity;
  uint32_t team, across;  // threads of a block, and of all blocks side by side, that share a row
  bool all;               // no sequence has more rows than the ring
  Batch batch;
  PageTable table;
  const int32_t* list;
  CopyTo where;
};

// Where row t goes.
template <class U>
KL_DEVICE U* copy_target(const CopyArgs<U>& a, uint32_t t) {
  if (a.where == CopyTo::kList) return a.to + t * a.to_outer;
  int64_t s = a.batch.sequence[t];
  uint32_t p = static_cast<uint32_t>(a.batch.positions[t]);
  if (a.where == CopyTo::kPage) {
    uint32_t size = static_cast<uint32_t>(a.table.page_size);
    int64_t page = a.table.pages[s * a.table.stride + p / size];
    return a.to + page * a.to_outer + p % size * a.to_inner;
  }
  return a.to + a.batch.slot[s] * a.to_outer + p % a.capacity * a.to_inner;
}

// Does a later row of the sequence take the place of row t?
template <class U>
KL_DEVICE bool copy_overtaken(const CopyArgs<U>& a, uint32_t t) {
  if (a.all) return false;
  return static_cast<uint32_t>(a.batch.first_row[a.batch.sequence[t] + 1]) - t > a.capacity;
}

// limits: vgprs 64, lds 0
template <class U>
KL_KERNEL(kCopyThreads)
copy_kernel(CopyArgs<U> a) {
  uint32_t thread = static_cast<uint32_t>(kl::thread()), own = thread / a.team;
  uint32_t first = static_cast<uint32_t>(kl::block_y()) * a.team + thread % a.team;
  uint32_t teams = kCopyThreads / a.team, step = static_cast<uint32_t>(kl::blocks()) * teams;
  for (uint32_t t = static_cast<uint32_t>(kl::block()) * teams + own; t < a.rows; t += step) {
    if (copy_overtaken(a, t)) continue;
    uint32_t row = a.where == CopyTo::kList ? static_cast<uint32_t>(a.list[t]) : t;
    const U* from = a.from + row * a.from_row;
    U* to = nullptr;
    for (uint32_t c = first; c < a.columns; c += kCopyUnits * a.across) {
      U x[kCopyUnits];
      KL_UNROLL
      for (uint32_t i = 0; i < kCopyUnits; ++i)
        if (c + i * a.across < a.columns) x[i] = words_of(from[c + i * a.across]);
      if (!to) to = copy_target(a, t);  // looked up while the loads are on their way
      KL_UNROLL
      for (uint32_t i = 0; i < kCopyUnits; ++i)
        if (c + i * a.across < a.columns) to[c + i * a.across] = words_of(x[i]);
    }
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
  int64_t columns = p.from.shape[1] * size / unit;
  int64_t capacity = p.where == CopyTo::kRing ? p.to.shape[1] : p.rows;
  HADAL_CHECK(p.rows < int64_t{1} << 31 && columns < int64_t{1} << 22,
              "[copy] from " + p.from.describe() + ", to " + p.to.describe());
  a.rows = static_cast<uint32_t>(p.rows);
  a.columns = static_cast<uint32_t>(columns);
  a.capacity = static_cast<uint32_t>(capacity);
  a.all = p.rows <= capacity;
  a.team = 32;
  while (a.team < kCopyThreads && a.team < columns) a.team *= 2;
  int64_t each = p.rows * columns < kCopyMany ? 1 : kCopyUnits;  // units of a thread
  int64_t beside = (columns + a.team * each - 1) / (a.team * each);
  a.across = static_cast<uint32_t>(beside) * a.team;
  a.batch = batch;
  a.table = table;
  a.list = p.list;
  a.where = p.where;
  int64_t teams = kCopyThreads / a.team;
  kl::Grid grid = {kl::grid(s, (p.rows + teams - 1) / teams), beside};
  kl::launch(copy_kernel<U>, grid, kCopyThreads, 0, s, a);
  return true;
}

inline void copy_rows(GpuStream s, const CopyPlan& p, const Batch& batch, const PageTable& table) {
  if (launch_copy<Vector16>(s, p, batch, table)) return;
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
