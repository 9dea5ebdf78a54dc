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

void ThreadPool::run_share(int index) {
  int64_t grains = (n_ + grain_ - 1) / grain_, count = size();
  int64_t b = grains * index / count * grain_, e = grains * (index + 1) / count * grain_;
  e = std::min(e, n_);
  if (b < e) call_(fn_, b, e, index);
}

void ThreadPool::dispatch(int64_t n, int64_t grain, Call call, void* fn) {
  n_ = n;
  grain_ = grain;
  call_ = call;
  fn_ = fn;
  pending_.store(static_cast<uint32_t>(workers_.size()), std::memory_order_relaxed);
  epoch_.fetch_add(1);  // sequentially consistent: pairs with the sleeper's check
  {
    std::lock_guard lock(sleep_mutex_);
    if (sleepers_ > 0) wake_.notify_all();
  }
  run_share(0);
  for (int spins = 0; pending_.load(std::memory_order_acquire) != 0; ++spins) {
    relax();
    if (spins > 1000) std::this_thread::yield();  // the worker may wait for this core
  }
}

void ThreadPool::work(int index) {
  uint32_t seen = 0;
  for (;;) {
    auto deadline = std::chrono::steady_clock::now() + kSpin;
    while (epoch_.load(std::memory_order_acquire) == seen && !stop_.load()) {
      for (int i = 0; i < 64 && epoch_.load(std::memory_order_acquire) == seen; ++i) relax();
      if (std::chrono::steady_clock::now() < deadline) continue;
      std::unique_lock lock(sleep_mutex_);
      ++sleepers_;
      wake_.wait(lock, [&] { return epoch_.load() != seen || stop_.load(); });
      --sleepers_;
    }
    if (stop_.load()) return;
    ++seen;
    run_share(index);
    pending_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace hadal
