// The pool's promise: every index once, by one thread at a time, whatever the sizes.
#include "base/threads.h"

#include <gtest/gtest.h>

#include <numeric>

namespace hadal {
namespace {

TEST(ThreadPool, CoversEveryIndexOnceForAnySizeAndGrain) {
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.size(), threads);
    for (int64_t n : {0, 1, 2, 15, 16, 17, 1000, 4099}) {
      for (int64_t grain : {1, 3, 16, 5000}) {
        std::vector<std::atomic<int>> hits(n);
        std::vector<std::atomic<int>> inside(threads);
        pool.run(n, grain, [&](int64_t begin, int64_t end, int thread) {
          ASSERT_LT(thread, threads);
          EXPECT_EQ(inside[thread].fetch_add(1), 0) << "one range at a time per thread";
          EXPECT_EQ(begin % grain, 0);
          EXPECT_LT(begin, end);
          EXPECT_LE(end, n);
          for (int64_t i = begin; i < end; ++i) ++hits[i];
          inside[thread].fetch_sub(1);
        });
        for (int64_t i = 0; i < n; ++i) ASSERT_EQ(hits[i], 1) << i << " of " << n;
      }
    }
  }
}

TEST(ThreadPool, ManyLoopsInARowSeeEachOthersResults) {
  ThreadPool pool(4);
  std::vector<int64_t> a(257, 0), b(257, 0);
  for (int loop = 0; loop < 20000; ++loop) {
    auto& from = loop % 2 ? b : a;
    auto& to = loop % 2 ? a : b;
    int64_t n = 1 + loop % 257;
    pool.run(n, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) to[i] = from[(i + 1) % 257] + 1;
    });
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(to[i], from[(i + 1) % 257] + 1) << loop;
  }
}

TEST(ThreadPool, WakesAfterSleeping) {
  ThreadPool pool(3);
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));  // longer than the workers spin
    std::atomic<int64_t> sum{0};
    pool.run(100, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t k = begin; k < end; ++k) sum += k;
    });
    EXPECT_EQ(sum, 4950);
  }
}

}  // namespace
}  // namespace hadal
