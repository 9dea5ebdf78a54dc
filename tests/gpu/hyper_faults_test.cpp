// The tests of hyper_test.cpp: a copy of the kernel with a dropped lane guard, or without a
// barrier, must not pass the check that the copy without a fault passes.
#include "gpu/broken_hyper.h"
#include "gpu/hyper_case.h"

namespace hadal {
namespace {

using namespace reference;

double broken_error(broken::Fault fault, Machine m) {
  Arena arena;
  Hyper h = make(arena, {DType::kF32, 33, 4, 96, 1 / std::sqrt(384.0)});
  broken::hyper_maps(on(m), fault, h.x, h.w, h.p, h.post, h.comb);
  return map_error(h, pre(h));
}

TEST(HyperTestOfTests, TheCopyIsRightWithoutAFault) {
  for (auto m : machines()) EXPECT_LE(broken_error(broken::Fault::kNone, m), 1e-5) << describe(m);
}

#ifndef __SANITIZE_THREAD__
TEST(HyperTestOfTests, ADroppedLaneGuardIsFound) {
  // A narrow warp has no lane to spare. On wide ones the next warp repairs the damage where it
  // stores later, as in order it does: this is why every check runs in a random order too.
  Machine wide = machines()[3];
  ASSERT_TRUE(wide.warp_size == 64 && wide.seed != 0);
  EXPECT_GT(broken_error(broken::Fault::kNoLaneGuard, wide), 1e-2);
}

TEST(HyperTestOfTests, AMissingBarrierIsFound) {
  for (auto m : machines())
    EXPECT_GT(broken_error(broken::Fault::kNoBarrier, m), 1e-2) << describe(m);
}
#else
TEST(HyperTestOfTestsDeathTest, AMissingBarrierIsReported) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        broken_error(broken::Fault::kNoBarrier, {32, 0});
        std::exit(0);
      },
      testing::ExitedWithCode(66), "data race");
}
#endif

}  // namespace
}  // namespace hadal
