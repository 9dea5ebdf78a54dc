// Addresses of cache entries on the device: kernels/batch.h for kernels. All offsets are 64 bits
// wide, since pools grow beyond 4 GiB. Part of the portable kernels (kl.h).
#pragma once

#include "kernels/batch.h"
#include "kernels/gpu/kl.h"

namespace hadal::KL_TARGET {

// Entry j of sequence s of a pool [P, page_size, D].
template <class T>
KL_DEVICE T* entry_address(const View<T>& pool, const PageTable& table, int64_t s, int64_t j) {
  int64_t page = table.pages[s * table.stride + j / table.page_size];
  return pool.at(page, j % table.page_size);
}

// Row of position p of sequence s: of this step, or from the ring of `capacity` rows per slot.
template <class T>
KL_DEVICE const T* history_address(const View<T>& ring, int64_t capacity, const View<T>& step,
                                   const Batch& b, int64_t s, int64_t p) {
  if (p >= b.start[s]) return step.at(b.first_row[s] + p - b.start[s]);
  return ring.at(b.slot[s], p % capacity);
}

}  // namespace hadal::KL_TARGET
