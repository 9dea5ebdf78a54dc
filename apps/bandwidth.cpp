// Streaming reads. The buffer is written first (untouched pages are one shared page of zeros), in
// large pages where the system grants them, and its sum is used, so that no read can be left out.
#include "bandwidth.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <string>

#include "base/status.h"
#include "base/threads.h"

namespace hadal {
namespace {

constexpr int64_t kWanted = int64_t{2} << 30, kGrain = int64_t{2} << 20;

int64_t free_memory() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  for (int64_t kib; file >> key >> kib >> unit;)
    if (key == "MemAvailable:") return kib * 1024;
  return kWanted;  // no such file: a quarter of this fits anywhere
}

#if defined(__x86_64__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
uint64_t
sum(const uint64_t* p, int64_t n) {
  constexpr int kLanes = 64;  // enough loads in flight for any vector width
  uint64_t lane[kLanes] = {}, total = 0;
  for (int64_t i = 0; i + kLanes <= n; i += kLanes)
    for (int j = 0; j < kLanes; ++j) lane[j] += p[i + j];
  for (uint64_t v : lane) total += v;
  return total;
}

}  // namespace

Bandwidth measure_read_bandwidth(int threads, int passes) {
  int64_t bytes = std::min(kWanted, free_memory() / 4) / kGrain * kGrain;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  HADAL_CHECK(memory != MAP_FAILED, "no memory for the bandwidth buffer");
  madvise(memory, bytes, MADV_HUGEPAGE);
  auto* words = static_cast<uint64_t*>(memory);
  ThreadPool pool(threads);
  constexpr int64_t kWords = sizeof(uint64_t);
  pool.run(bytes / kWords, kGrain / kWords, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) words[i] = static_cast<uint64_t>(i);
  });

  Bandwidth out{pool.size(), bytes, 0};
  std::atomic<uint64_t> total{0};
  for (int pass = 0; pass < passes; ++pass) {
    auto start = std::chrono::steady_clock::now();
    pool.run(bytes / kWords, kGrain / kWords,
             [&](int64_t begin, int64_t end, int) { total += sum(words + begin, end - begin); });
    double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    out.bytes_per_second = std::max(out.bytes_per_second, static_cast<double>(bytes) / s);
  }
  munmap(memory, bytes);
  uint64_t n = static_cast<uint64_t>(bytes) / kWords;
  HADAL_CHECK(total == static_cast<uint64_t>(passes) * (n * (n - 1) / 2), "a read went wrong");
  return out;
}

}  // namespace hadal
