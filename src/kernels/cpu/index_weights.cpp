// The indexer's head weights: one product per token and head.
#include "kernels/cpu/element.h"
#include "kernels/cpu/ops.h"
#include "kernels/index_score.h"

namespace hadal::cpu {

void index_weights(Context& ctx, const Tensor& raw, float scale, bool to_bf16, const Tensor& out) {
  int64_t rows = raw.shape[0], heads = raw.shape[1];
  expect_shape("index_weights", "out", out, {rows, heads});
  expect_dtype("index_weights", "out", out, DType::kF32);
  expect_adjacent("index_weights", "raw", raw);
  with_activation("index_weights", raw.dtype, [&](auto type) {
    using T = decltype(type);
    ctx.threads.run(rows, grain_of(heads), [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        const T* from = raw.at<const T>(t);
        float* to = out.at<float>(t);
        for (int64_t h = 0; h < heads; ++h) {
          float v = load(from[h]) * scale;
          to[h] = to_bf16 ? round_bf16(v) : v;
        }
      }
    });
  });
}

}  // namespace hadal::cpu
