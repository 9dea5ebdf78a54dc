// The fiber runner. Fibers yield to a scheduler at barriers and warp operations; the scheduler
// resumes them in order, or in a random order, until all are done or none can go on.
//
// Nothing here may be instrumented by ThreadSanitizer: fibers and scheduler share this memory by
// turns, which it would take for races of the kernel.
#include "kernels/gpu/kl_fiber.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

#include "base/status.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define HADAL_TSAN 1
#endif
#define HADAL_UNSEEN __attribute__((no_sanitize("thread"), noinline))

namespace hadal::fiber::kl {

constinit thread_local Here here = {};

namespace {

constexpr int kMaxThreads = 1024;
constexpr int kMaxShared = 64;  // shared variables of one kernel
constexpr int64_t kStackBytes = 256 << 10;

enum class State : uint8_t { kReady, kAtBarrier, kAtWarp, kDone };

struct Fiber {
  void* stack_pointer;
  char* stack;  // of the pool
  void* tsan;
  State state;
  bool entered;
  int parity;  // which slot the next exchange uses: one warp barrier each is enough
  uint64_t slot[2];
  const char* file;  // where it waits
  unsigned line;
};

// One block at a time on an OS thread.
struct Block {
  Fiber fibers[kMaxThreads];
  void* scheduler;
  void* scheduler_tsan;
  void (*body)(const void*);
  const void* params;
  int size, warp_size, made;
  uint64_t random;
  struct {
    void* data;
    size_t bytes;
  } shared[kMaxShared];
  int shared_count;
  char barrier_token, start_token, end_token;
};

// Owns the fibers' stacks of one OS thread; they are kept from launch to launch.
struct Pool {
  Block* block = nullptr;
  ~Pool();
};
thread_local Pool pool;
constinit thread_local Block* current = nullptr;

extern "C" void hadal_fiber_switch(void** save, void* to);

#if defined(__x86_64__)
asm(R"(
.text
.type hadal_fiber_switch, @function
.globl hadal_fiber_switch
hadal_fiber_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size hadal_fiber_switch, .-hadal_fiber_switch
)");
constexpr bool kHaveFibers = true;
#else
extern "C" void hadal_fiber_switch(void**, void*) {}
constexpr bool kHaveFibers = false;
#endif

Pool::~Pool() {
  if (!block) return;
  for (int i = 0; i < block->made; ++i) {
#ifdef HADAL_TSAN
    __tsan_destroy_fiber(block->fibers[i].tsan);
#endif
    munmap(block->fibers[i].stack, kStackBytes);
  }
  delete block;
}

[[noreturn]] HADAL_UNSEEN void fail(const Block& b, const char* what) {
  int count[4] = {};
  for (int i = 0; i < b.size; ++i) ++count[static_cast<int>(b.fibers[i].state)];
  std::fprintf(stderr,
               "kernel fault: %s in block (%lld, %lld, %lld) of %d threads: %d at a barrier, %d at "
               "a warp operation, %d finished\n",
               what, static_cast<long long>(here.block), static_cast<long long>(here.block_y),
               static_cast<long long>(here.block_z), b.size, count[1], count[2], count[3]);
  const Fiber* last = nullptr;
  for (int i = 0; i < b.size; ++i) {
    const Fiber& f = b.fibers[i];
    if (f.state != State::kAtBarrier && f.state != State::kAtWarp) continue;
    if (last && last->line == f.line && last->file == f.file && last->state == f.state) continue;
    std::fprintf(stderr, "  thread %d waits at %s:%u\n", i, f.file, f.line);
    last = &f;
  }
  std::abort();
}

// To the scheduler, until it resumes this fiber.
HADAL_UNSEEN void yield(State state, const Site& at) {
  Block& b = *current;
  Fiber& f = b.fibers[here.thread];
  f.state = state;
  f.file = at.file_name();
  f.line = at.line();
#ifdef HADAL_TSAN
  if (state == State::kAtBarrier) __tsan_release(&b.barrier_token);
  __tsan_switch_to_fiber(b.scheduler_tsan, __tsan_switch_to_fiber_no_sync);
#endif
  hadal_fiber_switch(&f.stack_pointer, b.scheduler);
#ifdef HADAL_TSAN
  if (state == State::kAtBarrier) __tsan_acquire(&b.barrier_token);
#endif
}

extern "C" HADAL_UNSEEN void hadal_fiber_entry() {
  Block& b = *current;
#ifdef HADAL_TSAN
  __tsan_acquire(&b.start_token);
#endif
  b.body(b.params);
#ifdef HADAL_TSAN
  __tsan_release(&b.end_token);
#endif
  yield(State::kDone, Site::current());
  std::abort();  // a finished fiber is never resumed
}

HADAL_UNSEEN void resume(Block& b, int i) {
  Fiber& f = b.fibers[i];
  here.thread = i;
#ifdef HADAL_TSAN
  __tsan_switch_to_fiber(f.tsan, __tsan_switch_to_fiber_no_sync);
#endif
  hadal_fiber_switch(&b.scheduler, f.stack_pointer);
}

HADAL_UNSEEN void start_fibers(Block& b) {
  for (; b.made < b.size; ++b.made) {
    Fiber& f = b.fibers[b.made];
    void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
    HADAL_CHECK(stack != MAP_FAILED, "no memory for the stack of a fiber");
    mprotect(stack, 4096, PROT_NONE);  // an overflow faults instead of reaching another stack
    f.stack = static_cast<char*>(stack);
#ifdef HADAL_TSAN
    f.tsan = __tsan_create_fiber(0);
#endif
  }
  for (int i = 0; i < b.size; ++i) {
    Fiber& f = b.fibers[i];
    // Six zeros for the registers that the first switch restores, then the entry as the address
    // that it returns to; the entry finds the stack as after a call.
#ifdef __SANITIZE_ADDRESS__
    // The frame in which the last block's fiber finished was never left.
    __asan_unpoison_memory_region(f.stack + kStackBytes - 4096, 4096);
#endif
    void** top = reinterpret_cast<void**>(f.stack + kStackBytes - 64);
    for (int r = 0; r < 6; ++r) top[r] = nullptr;
    top[6] = reinterpret_cast<void*>(&hadal_fiber_entry);
    f.stack_pointer = top;
    f.state = State::kReady;
    f.parity = 0;
  }
}

HADAL_UNSEEN uint64_t next_random(uint64_t& state) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

HADAL_UNSEEN void shuffle(int* order, int n, uint64_t& state) {
  for (int i = n - 1; i > 0; --i) {
    int j = static_cast<int>(next_random(state) % (i + 1));
    int t = order[i];
    order[i] = order[j];
    order[j] = t;
  }
}

HADAL_UNSEEN bool same_site(const Fiber& a, const Fiber& b) {
  return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

// Sets all of [begin, end) going if all wait in `state`.
HADAL_UNSEEN bool release(Block& b, int begin, int end, State state, const char* differ) {
  for (int i = begin; i < end; ++i)
    if (b.fibers[i].state != state) return false;
  for (int i = begin + 1; i < end; ++i)
    if (!same_site(b.fibers[begin], b.fibers[i])) fail(b, differ);
  for (int i = begin; i < end; ++i) b.fibers[i].state = State::kReady;
  return true;
}

HADAL_UNSEEN void run_block(Block& b) {
  start_fibers(b);
  for (;;) {
    int order[kMaxThreads], n = 0, done = 0;
    for (int i = 0; i < b.size; ++i) {
      if (b.fibers[i].state == State::kReady) order[n++] = i;
      if (b.fibers[i].state == State::kDone) ++done;
    }
    if (done == b.size) return;
    if (b.random) shuffle(order, n, b.random);
    for (int i = 0; i < n; ++i) resume(b, order[i]);
    bool released = false;
    for (int w = 0; w < b.size; w += b.warp_size)
      released |= release(b, w, w + b.warp_size, State::kAtWarp,
                          "lanes of a warp wait at different operations");
    released |= release(b, 0, b.size, State::kAtBarrier, "threads wait at different barriers");
    if (n == 0 && !released) fail(b, "divergent barrier or warp operation");
  }
}

Block& block_of_thread() {
  if (!pool.block) pool.block = new Block();
  return *pool.block;
}

HADAL_UNSEEN void run_all(Block& b, const Machine& m, Grid g, int block, int64_t shared) {
  int64_t total = g.x * g.y * g.z;
  // A random order of blocks is a walk over all of them by a stride that shares no factor.
  int64_t stride = 1, first = 0;
  b.random = m.seed ? m.seed * 0x9e3779b97f4a7c15u | 1 : 0;
  if (m.seed && total > 2) {
    first = static_cast<int64_t>(next_random(b.random) % total);
    for (stride = 1 + static_cast<int64_t>(next_random(b.random) % (total - 1));; ++stride) {
      int64_t x = stride, y = total;
      while (y) {
        int64_t r = x % y;
        x = y;
        y = r;
      }
      if (x == 1) break;
    }
  }
  for (int64_t n = 0; n < total; ++n) {
    int64_t id = (first + n * (stride % total)) % total;
    here.threads = block;
    here.warp_size = m.warp_size;
    here.blocks = g.x;
    here.block = id % g.x;
    here.block_y = id / g.x % g.y;
    here.block_z = id / g.x / g.y;
    b.shared_count = 0;
    if (shared) std::memset(here.dynamic, 0xff, shared);
#ifdef HADAL_TSAN
    __tsan_release(&b.start_token);
#endif
    run_block(b);
#ifdef HADAL_TSAN
    __tsan_acquire(&b.end_token);
#endif
  }
}

}  // namespace

HADAL_UNSEEN void poison_once(void* data, size_t bytes) {
  Block& b = *current;
  for (int i = 0; i < b.shared_count; ++i)
    if (b.shared[i].data == data) return;
  HADAL_CHECK(b.shared_count < kMaxShared, "a kernel has more than 64 shared variables");
  b.shared[b.shared_count++] = {data, bytes};
  volatile char* bytes_of = static_cast<char*>(data);
  for (size_t i = 0; i < bytes; ++i) bytes_of[i] = static_cast<char>(0xff);
}

HADAL_UNSEEN void sync(Site at) { yield(State::kAtBarrier, at); }

HADAL_UNSEEN uint64_t exchange(uint64_t bits, int from, Site at) {
  Block& b = *current;
  int me = here.thread, base = me / b.warp_size * b.warp_size;
  Fiber& f = b.fibers[me];
  int parity = f.parity;
  f.slot[parity] = bits;
  f.parity ^= 1;
  yield(State::kAtWarp, at);
  bool inside = from >= 0 && from < b.warp_size;
  return inside ? b.fibers[base + from].slot[parity] : bits;
}

HADAL_UNSEEN uint64_t ballot(bool v, Site at) {
  Block& b = *current;
  int me = here.thread, base = me / b.warp_size * b.warp_size, parity = b.fibers[me].parity;
  exchange(v, 0, at);
  uint64_t bits = 0;
  for (int i = 0; i < b.warp_size; ++i) bits |= (b.fibers[base + i].slot[parity] & 1) << i;
  return bits;
}

void run(const Machine& m, Grid g, int block, int64_t shared, void (*body)(const void*),
         const void* params) {
  HADAL_CHECK(kHaveFibers, "the fiber runner needs an x86-64 processor");
  HADAL_CHECK(m.warp_size == 32 || m.warp_size == 64,
              "warp size " + std::to_string(m.warp_size) + " is neither 32 nor 64");
  HADAL_CHECK(block > 0 && block <= kMaxThreads && block % m.warp_size == 0,
              "a block of " + std::to_string(block) + " threads is not a number of whole warps");
  HADAL_CHECK(!current, "a kernel launches a kernel");
  if (g.x == 0 || g.y == 0 || g.z == 0) return;
  Block& b = block_of_thread();
  b.body = body;
  b.params = params;
  b.size = block;
  b.warp_size = m.warp_size;
#ifdef HADAL_TSAN
  b.scheduler_tsan = __tsan_get_current_fiber();
#endif
  // Of the exact size, so that AddressSanitizer sees an access beyond it.
  here.dynamic = shared ? ::operator new (shared, std::align_val_t{16}) : nullptr;
  current = &b;
  run_all(b, m, g, block, shared);
  current = nullptr;
  if (shared) ::operator delete (here.dynamic, std::align_val_t{16});
  here = {};
}

}  // namespace hadal::fiber::kl
