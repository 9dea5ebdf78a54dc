// The read bandwidth of this machine's memory, by reading a buffer that no cache holds.
#pragma once

#include <cstdint>

namespace hadal {

struct Bandwidth {
  int threads = 0;
  int64_t buffer_bytes = 0;
  double bytes_per_second = 0;  // the best pass
};

// Reads a buffer of 2 GiB, or of a quarter of the free memory if that is less, `passes` times with
// all `threads` (0 = one for each core).
Bandwidth measure_read_bandwidth(int threads, int passes);

}  // namespace hadal
