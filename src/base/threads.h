// A fixed pool of threads for the loops inside one op. Work is cut into a few contiguous ranges for
// each thread, and whoever is free takes the next: a thread that the system keeps waiting delays
// nobody. Ops must not depend on who computes a range, nor on where ranges are cut.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace hadal {

class ThreadPool {
 public:
  // `threads` >= 1 workers in all, the caller included; 0 = one for each core this process may use.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls fn(begin, end, thread) on disjoint ranges that cover [0, n); blocks until all are done.
  // `thread` in [0, size()) runs one range at a time: it may index scratch.
  // `grain`: ranges start at multiples of it (except the end); a loop of one grain stays on the
  // calling thread. fn must not throw and must not call run() again.
  template <class F>
  void run(int64_t n, int64_t grain, F&& fn) {
    if (n <= 0) return;
    if (size() == 1 || n <= grain) {
      fn(int64_t{0}, n, 0);
      return;
    }
    dispatch(
        n, grain, [](void* f, int64_t b, int64_t e, int t) { (*static_cast<F*>(f))(b, e, t); },
        const_cast<void*>(static_cast<const void*>(&fn)));
  }

 private:
  using Call = void (*)(void*, int64_t, int64_t, int);
  void dispatch(int64_t n, int64_t grain, Call call, void* fn);
  void work(int index);
  // Takes and runs ranges of loop `loop` until none is left.
  void take_ranges(uint32_t loop, int index);

  std::vector<std::thread> workers_;
  // Which loop runs and which of its ranges is next: loop number << 32 | range. Ranges are taken by
  // compare-and-swap, so a late thread can never take a range of a loop that is over; while the
  // next loop is being written the range is kClosed.
  static constexpr uint32_t kClosed = 0xffffffff;
  std::atomic<uint64_t> ticket_{kClosed};
  // The current loop. Atomic because a late thread may read them while the next loop is written (it
  // then fails to take a range).
  std::atomic<int64_t> n_{0}, grain_{1};
  std::atomic<Call> call_{nullptr};
  std::atomic<void*> fn_{nullptr};
  std::atomic<uint32_t> ranges_{0}, done_{0};
  std::atomic<bool> stop_{false};
  std::mutex sleep_mutex_;
  std::condition_variable wake_;
  int sleepers_ = 0;  // guarded by sleep_mutex_
};

}  // namespace hadal
