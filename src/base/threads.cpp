// Workers spin for a short while after each loop (ops follow one another within microseconds in a
// decode step) and then sleep, so that an idle engine costs nothing.
#include "base/threads.h"

#include <sched.h>

#include <algorithm>
#include <chrono>

namespace hadal {
namespace {

constexpr auto kSpin = std::chrono::microseconds(200);

int allowed_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  int n = threads > 0 ? threads : allowed_cores();
  workers_.reserve(n - 1);
  for (int i = 1; i < n; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(sleep_mutex_);
    stop_.store(true);
  }
  wake_.notify_all();
  for (auto& w : workers_) w.join();
}

void ThreadPool::take_ranges(uint32_t loop, int index) {
  constexpr auto relaxed = std::memory_order_relaxed;
  for (;;) {
    uint64_t ticket = ticket_.load(std::memory_order_acquire);
    auto range = static_cast<uint32_t>(ticket);
    int64_t n = n_.load(relaxed), grain = grain_.load(relaxed);
    uint32_t ranges = ranges_.load(relaxed);
    Call call = call_.load(relaxed);
    void* fn = fn_.load(relaxed);
    if (ticket >> 32 != loop || range >= ranges) return;  // kClosed is above any count
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) continue;
    int64_t grains = (n + grain - 1) / grain;
    int64_t begin = grains * range / ranges * grain;
    int64_t end = std::min(grains * (range + 1) / ranges * grain, n);
    call(fn, begin, end, index);
    done_.fetch_add(1, std::memory_order_release);
  }
}

void ThreadPool::dispatch(int64_t n, int64_t grain, Call call, void* fn) {
  constexpr int64_t kRangesPerThread = 4;
  uint32_t loop = static_cast<uint32_t>(ticket_.load(std::memory_order_relaxed) >> 32) + 1;
  ticket_.store(uint64_t{loop} << 32 | kClosed);
  n_.store(n, std::memory_order_relaxed);
  grain_.store(grain, std::memory_order_relaxed);
  call_.store(call, std::memory_order_relaxed);
  fn_.store(fn, std::memory_order_relaxed);
  int64_t ranges = std::min((n + grain - 1) / grain, size() * kRangesPerThread);
  ranges_.store(static_cast<uint32_t>(ranges), std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  ticket_.store(uint64_t{loop} << 32);  // sequentially consistent: pairs with the sleeper's check
  {
    std::lock_guard lock(sleep_mutex_);
    if (sleepers_ > 0) wake_.notify_all();
  }
  take_ranges(loop, 0);
  for (int spins = 0; done_.load(std::memory_order_acquire) != ranges; ++spins) {
    relax();
    if (spins > 1000) std::this_thread::yield();  // the worker may wait for this core
  }
}

void ThreadPool::work(int index) {
  uint32_t seen = 0;
  auto open_loop = [&] {
    uint64_t ticket = ticket_.load(std::memory_order_acquire);
    auto loop = static_cast<uint32_t>(ticket >> 32);
    return loop != seen && static_cast<uint32_t>(ticket) != kClosed ? loop : seen;
  };
  for (;;) {
    auto deadline = std::chrono::steady_clock::now() + kSpin;
    while (open_loop() == seen && !stop_.load()) {
      for (int i = 0; i < 64 && open_loop() == seen; ++i) relax();
      if (std::chrono::steady_clock::now() < deadline) continue;
      std::unique_lock lock(sleep_mutex_);
      ++sleepers_;
      wake_.wait(lock, [&] { return open_loop() != seen || stop_.load(); });
      --sleepers_;
    }
    if (stop_.load()) return;
    seen = open_loop();
    take_ranges(seen, index);
  }
}

}  // namespace hadal
