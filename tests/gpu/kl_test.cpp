// The fiber runner itself: warp operations, reductions, and the faults that it must report. A test
// of kernels is worth what its runner finds.
#include "kernels/gpu/kl.h"

#include <gtest/gtest.h>

#include "gpu/reference.h"

namespace hadal::fiber {
namespace {

using reference::machines;

struct Out {
  float* f;
  int32_t* i;
  uint64_t* u;
};

KL_KERNEL(128) warp_kernel(Out o) {
  int t = kl::thread(), lane = kl::lane();
  o.f[t] = kl::shfl_xor(static_cast<float>(t), 3);
  o.i[t] = kl::shfl_down(t, 2);
  o.i[128 + t] = kl::shfl(t, 5);
  o.u[t] = kl::ballot(lane % 3 == 0);
}

TEST(Kl, WarpOperations) {
  for (Machine m : machines()) {
    std::vector<float> f(128);
    std::vector<int32_t> i(256);
    std::vector<uint64_t> u(128);
    kl::launch(warp_kernel, {1}, 128, 0, &m, Out{f.data(), i.data(), u.data()});
    for (int t = 0; t < 128; ++t) {
      int lane = t % m.warp_size, base = t - lane;
      EXPECT_EQ(f[t], static_cast<float>(t ^ 3));
      EXPECT_EQ(i[t], lane + 2 < m.warp_size ? t + 2 : t);
      EXPECT_EQ(i[128 + t], base + 5);
      uint64_t want = 0;
      for (int l = 0; l < m.warp_size; l += 3) want |= uint64_t{1} << l;
      EXPECT_EQ(u[t], want);
    }
  }
}

KL_KERNEL(256) reduce_kernel(Out o) {
  int t = kl::thread();
  float x = static_cast<float>((t * 37) % 256);
  float sum = kl::block_sum(x), most = kl::block_max(-x), bad = kl::block_max(t == 77 ? NAN : x);
  kl::Best best = kl::block_best({x >= 200 ? 200.0f : x, t});
  kl::Rank rank = kl::block_rank(x < 100);
  o.i[t] = rank.before;
  if (t == 255) {
    o.f[0] = sum;
    o.f[1] = most;
    o.f[2] = bad;
    o.i[256] = best.index;
    o.i[257] = rank.total;
  }
}

TEST(Kl, BlockReductions) {
  for (Machine m : machines()) {
    std::vector<float> f(3);
    std::vector<int32_t> i(258);
    kl::launch(reduce_kernel, {1}, 256, 0, &m, Out{f.data(), i.data(), nullptr});
    EXPECT_EQ(f[0], 255 * 128);
    EXPECT_EQ(f[1], 0);
    EXPECT_TRUE(std::isnan(f[2]));
    int before = 0, first_best = -1;
    for (int t = 0; t < 256; ++t) {
      EXPECT_EQ(i[t], before);
      before += (t * 37) % 256 < 100;
      if (first_best < 0 && (t * 37) % 256 >= 200) first_best = t;
    }
    EXPECT_EQ(i[256], first_best);
    EXPECT_EQ(i[257], 100);
  }
}

KL_KERNEL(64) grid_kernel(Out o) {
  KL_SHARED(float, fresh, [64]);
  KL_DYNAMIC_SHARED(float, dynamic);
  int64_t b = kl::block() + kl::blocks() * (kl::block_y() + 3 * kl::block_z());
  bool unwritten = std::isnan(fresh[kl::thread()]) && std::isnan(dynamic[kl::thread()]);
  kl::sync();
  fresh[kl::thread()] = dynamic[kl::thread()] = 1;
  if (unwritten) kl::atomic_add(&o.i[b], 1);
}

TEST(Kl, EveryBlockRunsOnceWithPoisonedSharedMemory) {
  for (Machine m : machines()) {
    std::vector<int32_t> i(5 * 3 * 2);
    kl::launch(grid_kernel, {5, 3, 2}, 64, 64 * 4, &m, Out{nullptr, i.data(), nullptr});
    for (int32_t n : i) EXPECT_EQ(n, 64);
  }
}

KL_KERNEL(64) divergent_barrier(Out) {
  if (kl::thread() < 40) kl::sync();
}
KL_KERNEL(64) mismatched_barrier(Out) {
  if (kl::thread() < 40)
    kl::sync();
  else
    kl::sync();
}
KL_KERNEL(64) divergent_shuffle(Out) {
  if (kl::thread() != 9) kl::shfl_xor(1, 1);
}
KL_KERNEL(64) missing_barrier(Out o) {
  KL_SHARED(float, value, [64]);
  value[kl::thread()] = static_cast<float>(kl::thread());
  if (o.i) kl::sync();
  o.f[kl::thread()] = value[63 - kl::thread()];
}

TEST(KlDeathTest, FaultsAreReported) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  Machine m;
  EXPECT_DEATH(kl::launch(divergent_barrier, {1}, 64, 0, &m, Out{}),
               "divergent barrier.*: 40 at a barrier, 0 at a warp operation, 24 finished");
  EXPECT_DEATH(kl::launch(mismatched_barrier, {1}, 64, 0, &m, Out{}), "different barriers");
  EXPECT_DEATH(kl::launch(divergent_shuffle, {1}, 64, 0, &m, Out{}), "divergent barrier or warp");
}

// In plain builds a missing barrier gives unwritten or wrong values; under ThreadSanitizer it is
// reported with the lines of the kernel.
TEST(KlDeathTest, MissingBarrierIsFound) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  int32_t yes = 1;
  std::vector<float> f(64);
  for (Machine m : machines()) {
    kl::launch(missing_barrier, {1}, 64, 0, &m, Out{f.data(), &yes, nullptr});
    for (int t = 0; t < 64; ++t) EXPECT_EQ(f[t], 63 - t);
  }
#ifdef __SANITIZE_THREAD__
  EXPECT_EXIT(
      {
        Machine m;
        kl::launch(missing_barrier, {1}, 64, 0, &m, Out{f.data(), nullptr, nullptr});
        std::exit(0);
      },
      testing::ExitedWithCode(66), "data race.*");
#else
  Machine m;
  kl::launch(missing_barrier, {1}, 64, 0, &m, Out{f.data(), nullptr, nullptr});
  EXPECT_TRUE(std::isnan(f[0]));
#endif
}

}  // namespace
}  // namespace hadal::fiber
