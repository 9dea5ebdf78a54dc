// The CPU side of the kernel language (kl.h): a block's threads are fibers on one OS thread, so a
// kernel's barriers, warp operations and guards can be tested where there is no GPU. Built for
// finding faults, not for speed: a switch costs some 50 ns. x86-64 only.
//
// Found and reported, with an abort: a barrier that some threads of the block do not reach, threads
// that wait at different barriers, a warp operation that some lanes do not reach. Under
// ThreadSanitizer every fiber counts as a thread and only barriers order them, so a missing barrier
// is a data race. Shuffles order nothing, as on the GPU.
#pragma once

#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>

namespace hadal::fiber {

// What a launch runs on: pass its address as the stream. Launches return when they are done.
struct Machine {
  int warp_size = 32;            // or 64
  uint32_t seed = 0;             // 0: threads and blocks in order; else a random order
  int64_t max_blocks = 1 << 20;  // blocks along x that kl::grid() gives
};

namespace kl {

using Site = std::source_location;

struct Grid {
  int64_t x = 0, y = 1, z = 1;
};

// Where the running fiber is. The runner writes it.
struct Here {
  int thread, threads, warp_size;
  int64_t block, block_y, block_z, blocks;
  void* dynamic;
};
extern constinit thread_local Here here;

inline int thread() { return here.thread; }
inline int threads() { return here.threads; }
inline int64_t block() { return here.block; }
inline int64_t block_y() { return here.block_y; }
inline int64_t block_z() { return here.block_z; }
inline int64_t blocks() { return here.blocks; }
inline int warp_size() { return here.warp_size; }
inline void* dynamic_shared() { return here.dynamic; }

// Fills a shared variable with 0xFF (NaN) when the block's first thread comes to its declaration.
void poison_once(void* data, size_t bytes);

void sync(Site at = Site::current());

// Gives `bits` to the warp and returns what lane `from` of it gave; a lane outside gives its own.
uint64_t exchange(uint64_t bits, int from, Site at);
uint64_t ballot(bool v, Site at = Site::current());

template <class T>
T shfl(T v, int lane, Site at = Site::current()) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  uint64_t bits = 0;
  std::memcpy(&bits, &v, sizeof(T));
  bits = exchange(bits, lane, at);
  std::memcpy(&v, &bits, sizeof(T));
  return v;
}
template <class T>
T shfl_xor(T v, int mask, Site at = Site::current()) {
  return shfl(v, (here.thread % here.warp_size) ^ mask, at);
}
template <class T>
T shfl_down(T v, int delta, Site at = Site::current()) {
  return shfl(v, here.thread % here.warp_size + delta, at);
}

inline int atomic_add(int* p, int v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
inline int count_bits(uint64_t v) { return __builtin_popcountll(v); }
inline float exp_fast(float x) { return __builtin_expf(x); }
inline float reciprocal_fast(float x) { return 1.0f / x; }

// body(params) for every thread of every block.
void run(const Machine& m, Grid g, int block, int64_t shared, void (*body)(const void*),
         const void* params);

inline int64_t grid(void* stream, int64_t items) {
  int64_t most = static_cast<Machine*>(stream)->max_blocks;
  return items < most ? items : most;
}

template <class P>
struct Call {
  void (*kernel)(P);
  P params;
};

template <class P>
void launch(void (*kernel)(P), Grid g, int block, int64_t shared, void* stream, const P& p) {
  Call<P> call{kernel, p};
  auto body = [](const void* c) {
    auto* typed = static_cast<const Call<P>*>(c);
    typed->kernel(typed->params);
  };
  run(*static_cast<Machine*>(stream), g, block, shared, body, &call);
}

}  // namespace kl
}  // namespace hadal::fiber
