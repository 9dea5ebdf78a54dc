// Addresses of cache entries on the device: kernels/batch.h for kernels. All offsets are 64 bits
// wide, since pools grow beyond 4 GiB; positions fit into 32, whose division is several times
// faster. Part of the portable kernels (kl.h).
#pragma once

#include "kernels/batch.h"
#include "kernels/gpu/kl.h"

namespace hadal::KL_TARGET {

// Entry j of sequence s of a pool [P, page_size, D].
template <class T>
KL_DEVICE T* entry_address(const View<T>& pool, const PageTable& table, int64_t s, int64_t j) {
  uint32_t entry = static_cast<uint32_t>(j), size = static_cast<uint32_t>(table.page_size);
  int64_t page = table.pages[s * table.stride + entry / size];
  return pool.at(page, entry % size);
}

// Row of position p of sequence s: of this step, or from the ring of `capacity` rows per slot.
template <class T>
KL_DEVICE const T* history_address(const View<T>& ring, int64_t capacity, const View<T>& step,
                                   const Batch& b, int64_t s, int64_t p) {
  if (p >= b.start[s]) return step.at(b.first_row[s] + p - b.start[s]);
  return ring.at(b.slot[s], static_cast<uint32_t>(p) % static_cast<uint32_t>(capacity));
}

}  // namespace hadal::KL_TARGET
