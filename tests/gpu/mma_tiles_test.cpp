// The 128 x 128 tiles of the tensor core products, which the launcher takes for products that are
// too large for fibers: called here by name, on an emulated tensor core, against double-precision
// sums.
#include "gpu/mma_cases.h"
#include "kernels/cuda/mma_linear.cu.h"

namespace hadal {
namespace {

using namespace reference;

TEST(MmaTiles, MatchDouble) {
  for (const Format& f : kMmaFormats) {
    Arena arena;
    Activation x = random_activation(arena, f.x, 140, 384);
    Weight w = random_weight(arena, f.w, 150, 384, f.scale, 77);
    std::vector<Dot> want = product(x, w);
    {
      Machine machine{32, 11, 3};
      Tensor y = arena.poison(DType::kF32, {140, 150}, 3);
      auto run = [&](auto x_format, auto w_format) {
        fiber::MmaTileArgs a = {fiber::linear_problem(x, w, y), x.data.stride[0] * dtype_size(f.x),
                                w.data.stride[0] * dtype_size(f.w), 0, 0};
        fiber::launch_mma_tiles<decltype(x_format), decltype(w_format), 128, 128>(on(machine), a);
      };
      auto with_w = [&](auto x_format) {
        if (w.fp8()) return run(x_format, fiber::AsFp8<uint8_t>{});
        if (w.fp4()) return run(x_format, fiber::AsFp4{});
        run(x_format, fiber::AsBF16{});
      };
      if (f.x == DType::kF8E4M3)
        with_w(fiber::AsFp8<float>{});
      else
        with_w(fiber::AsBF16{});
      expect_dots(y, want, name(f) + " " + describe(machine));
    }
    EXPECT_TRUE(arena.padding_untouched());
  }
}

}  // namespace
}  // namespace hadal
