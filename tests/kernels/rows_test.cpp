// The row loops of each instruction set against the number formats of base/dtype.h, bit for bit:
// quantisers and roundings must not depend on the machine.
#include "kernels/cpu/row_kernels.h"
#include "kernels/op_rig.h"

namespace hadal::test {
namespace {

// Values around every rounding decision of the formats, spread over binades, and the specials.
std::vector<float> hard_values() {
  std::vector<float> v = {0.0f, -0.0f, 448, -448, 464, 1e-45f, -1e-40f, 3e38f, -3e38f};
  for (int code = 0; code < 127; ++code) {
    float mid = (e4m3_to_f32(static_cast<uint8_t>(code)) +
                 e4m3_to_f32(static_cast<uint8_t>(code < 126 ? code + 1 : code))) /
                2;
    for (float f : {mid, std::nextafter(mid, 0.0f), std::nextafter(mid, 1e9f)}) {
      v.push_back(f);
      v.push_back(-f);
    }
  }
  for (int i = 0; i < 4000; ++i)
    v.push_back(static_cast<float>(normal() * std::exp2(static_cast<double>(uniform(-30, 12)))));
  return v;
}

TEST_ROWS(Rows, StoreBf16AsTheDefinitionRounds) {
  std::vector<float> x = hard_values();
  // Bit patterns at random: every exponent, infinities and NaNs among them.
  for (int i = 0; i < 20000; ++i)
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(generator()())));
  for (uint32_t u : {0x7f800000u, 0xff800000u, 0x7f800001u, 0xffc00000u, 0x7f7fffffu, 0x00008000u,
                     0x00018000u, 0x7fffffffu})
    x.push_back(std::bit_cast<float>(u));
  std::vector<BF16> y(x.size());
  rig.kernels.rows->bf16.finish(x.data(), nullptr, static_cast<int64_t>(x.size()), y.data());
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i].bits, f32_to_bf16(x[i]).bits) << x[i];
  std::vector<float> back(x.size());
  rig.kernels.rows->bf16.widen(y.data(), static_cast<int64_t>(x.size()), back.data());
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(back[i]), uint32_t{y[i].bits} << 16);
}

TEST_ROWS(Rows, CodeE4m3AsTheDefinitionRounds) {
  std::vector<float> x = hard_values();
  for (bool pow2 : {true, false})
    for (size_t first = 0; first < x.size(); first += 128) {
      int64_t n = std::min<int64_t>(128, static_cast<int64_t>(x.size() - first));
      uint8_t codes[128];
      float amax = 0;
      for (int64_t i = 0; i < n; ++i) amax = std::max(amax, std::fabs(x[first + i]));
      float s = rig.kernels.rows->f32.quantize_fp8(&x[first], n, pow2, codes);
      ASSERT_EQ(s, fp8_block_scale(amax, pow2));
      for (int64_t i = 0; i < n; ++i) {
        float v = std::min(std::max(x[first + i] / s, -448.0f), 448.0f);
        ASSERT_EQ(codes[i], f32_to_e4m3(v)) << v;
      }
    }
}

TEST_ROWS(Rows, RoundTripsAsTheDefinitionsDo) {
  std::vector<float> x = hard_values();
  x.resize(x.size() / 64 * 64);
  std::vector<float> fp8 = x, fp4 = x;
  int64_t n = static_cast<int64_t>(x.size());
  rig.kernels.rows->f32.qdq_fp8(fp8.data(), n, 64);
  rig.kernels.rows->f32.qdq_fp4(fp4.data(), n);
  auto scale_of = [&](int64_t i, int64_t block, auto&& f) {
    float amax = 0;
    for (int64_t j = i / block * block; j < i / block * block + block; ++j)
      amax = std::max(amax, std::fabs(x[j]));
    return f(amax);
  };
  for (int64_t i = 0; i < n; ++i) {
    float s8 = scale_of(i, 64, [](float a) { return fp8_block_scale(a, true); });
    float s4 = scale_of(i, 32, fp4_block_scale);
    float want8 = e4m3_to_f32(f32_to_e4m3(std::min(std::max(x[i] / s8, -448.0f), 448.0f))) * s8;
    float want4 = kE2M1[f32_to_e2m1(std::min(std::max(x[i] / s4, -6.0f), 6.0f))] * s4;
    ASSERT_EQ(std::bit_cast<uint32_t>(fp8[i]), std::bit_cast<uint32_t>(want8)) << x[i] / s8;
    ASSERT_EQ(std::bit_cast<uint32_t>(fp4[i]), std::bit_cast<uint32_t>(want4)) << x[i] / s4;
  }
}

// Nothing past a row's end is read into its values or written.
TEST_ROWS(Rows, StayInsideTheirRow) {
  for (int64_t n = 1; n <= 70; ++n) {
    Array x(DType::kBF16, {n + 40}), y(DType::kBF16, {n + 40});
    for (int64_t i = 0; i < n; ++i) x.set(i, normal());
    rig.kernels.rows->bf16.rms(x.view.at<BF16>(), nullptr, 1e-6f, n, y.view.at<BF16>());
    for (int64_t i = 0; i < n + 40; ++i) ASSERT_EQ(std::isnan(y.at(i)), i >= n);
    uint8_t codes[128];
    std::fill(codes, codes + 128, 0xAB);
    rig.kernels.rows->bf16.quantize_fp8(x.view.at<BF16>(), n, true, codes);
    for (int64_t i = n; i < 128; ++i) ASSERT_EQ(codes[i], 0xAB);
    for (int64_t i = 0; i < n; ++i) ASSERT_NE(codes[i] & 0x7F, 0x7F);
  }
}

}  // namespace
}  // namespace hadal::test
