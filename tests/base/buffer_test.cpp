// Overruns of scratch and cache memory must show where they happen.
#include "base/buffer.h"

#include <gtest/gtest.h>

#include <cmath>

namespace hadal {
namespace {

TEST(Buffer, IsZeroAlignedAndWholeToItsLastByte) {
  for (int64_t bytes : {1, 63, 64, 65, 4095, 4096, 4097, 100000}) {
    Buffer b(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(b.data()) % 64, 0u);
    for (int64_t i = 0; i < bytes; ++i) ASSERT_EQ(b.data()[i], 0);
    b.data()[bytes - 1] = 1;
  }
}

TEST(BufferDeathTest, AnOverrunOfOneLineEndsTheProgram) {
  for (int64_t bytes : {64, 1600, 4096, 8200}) {
    Buffer b(bytes);
    volatile char* p = b.data();
    EXPECT_DEATH(p[bytes + 64] = 1, "") << bytes;
  }
}

TEST(Buffer, MovesLeaveOneOwner) {
  Buffer a(100);
  a.data()[5] = 7;
  Buffer b = std::move(a);
  EXPECT_EQ(b.data()[5], 7);
  a = Buffer(10);
  EXPECT_EQ(a.bytes(), 10);
  EXPECT_EQ(b.bytes(), 100);
}

TEST(Arena, PoisonIsNaNInEveryActivationFormat) {
  Arena arena;
  Tensor f32 = arena.make(DType::kF32, {3, 5}), bf16 = arena.make(DType::kBF16, {7});
  Tensor e4m3 = arena.make(DType::kF8E4M3, {9});
  EXPECT_EQ(arena.bytes(), 60 + 14 + 9);
  arena.poison();
  EXPECT_TRUE(std::isnan(*f32.at<float>(2, 4)));
  EXPECT_TRUE(std::isnan(bf16_to_f32(*bf16.at<BF16>(6))));
  EXPECT_TRUE(std::isnan(e4m3_to_f32(*e4m3.at<uint8_t>(8))));
}

}  // namespace
}  // namespace hadal
