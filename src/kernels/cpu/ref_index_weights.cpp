// The indexer's head weights: one product per token and head.
#include "kernels/index_score.h"

namespace hadal {

void index_weights(Context&, const Tensor& raw, float scale, bool to_bf16, const Tensor& out) {
  HADAL_CHECK(raw.shape[0] == out.shape[0] && raw.shape[1] == out.shape[1],
              "[index_weights] raw " + raw.describe() + ", out " + out.describe());
  for (int64_t t = 0; t < raw.shape[0]; ++t) {
    for (int64_t h = 0; h < raw.shape[1]; ++h) {
      float v = raw.dtype == DType::kF32 ? *raw.at<const float>(t, h)
                                         : bf16_to_f32(*raw.at<const BF16>(t, h));
      v *= scale;
      *out.at<float>(t, h) = to_bf16 ? round_bf16(v) : v;
    }
  }
}

}  // namespace hadal
