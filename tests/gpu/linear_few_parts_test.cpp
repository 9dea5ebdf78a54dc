// What the products for few rows are made of: which shapes their kernels take, and the decoding of
// every code. On the CPU alone.
#include "gpu/linear_cases.h"
#include "kernels/gpu/linear_few.cu.h"

namespace hadal {
namespace {

using namespace reference;

const Format kFormats[] = {
    {DType::kF32, DType::kF32, DType::kF32},        {DType::kBF16, DType::kBF16, DType::kF32},
    {DType::kBF16, DType::kF16, DType::kF32},       {DType::kF8E4M3, DType::kF8E4M3, DType::kF32},
    {DType::kBF16, DType::kF8E4M3, DType::kF8E8M0}, {DType::kF8E4M3, DType::kI8, DType::kF8E8M0}};

// Which shapes the kernels of linear_few.cu.h take, so that linear_few_test tests these.
TEST(LinearFewParts, TakesWholePieces) {
  for (const Format& f : kFormats) {
    for (Rows rows : {Rows::kWhole, Rows::kOdd}) {
      Arena arena;
      Weight w = random_weight(arena, f.w, 2, 288, f.scale, 77, rows);
      Tensor y = arena.poison(DType::kF32, {1, 2});
      fiber::FewArgs a = {
          fiber::linear_problem(random_activation(arena, f.x, 1, 288, rows), w, y), 0, 0, 0, 0, 0};
      EXPECT_EQ(fiber::few_plan(a), rows == Rows::kWhole) << name(f);
    }
  }
}

// Every code decodes to the value that base/dtype.h gives it.
TEST(LinearFewParts, DecodesEveryCode) {
  for (uint32_t code = 0; code < 256; ++code) {
    float got[8];
    fiber::e4m3x4_to_f32(code | (code ^ 0x55) << 8 | (code ^ 0x80) << 16 | (code ^ 0xff) << 24,
                         got);
    const uint32_t order[] = {code, code ^ 0x55, code ^ 0x80, code ^ 0xff};
    for (int i = 0; i < 4; ++i) {
      float want = e4m3_to_f32(static_cast<uint8_t>(order[i]));
      if (std::isnan(want))
        EXPECT_TRUE(std::isnan(got[i])) << order[i];
      else
        EXPECT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want)) << order[i];
    }
    fiber::e2m1x8_to_f32(code | code << 12 | code << 24, got);
    const uint32_t nibble[] = {code & 15, code >> 4, 0,         code & 15,
                               code >> 4, 0,         code & 15, code >> 4};
    for (int i = 0; i < 8; ++i) EXPECT_EQ(got[i] * fiber::AsFp4::kUnit, kE2M1[nibble[i]]) << code;
    float scale = fiber::scale_value(static_cast<uint8_t>(code));
    if (code == 255)
      EXPECT_TRUE(std::isnan(scale));
    else
      EXPECT_EQ(scale, e8m0_to_f32(static_cast<uint8_t>(code)));
  }
}

}  // namespace
}  // namespace hadal
