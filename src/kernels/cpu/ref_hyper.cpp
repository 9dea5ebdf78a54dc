// Reference of hyper_pre.
#include "kernels/cpu/ref_hyper.h"

#include "kernels/cpu/hyper_mix.h"
#include "kernels/dispatch/kernels.h"

namespace hadal {

void ref_hyper_pre(Context& ctx, const Tensor& x, const HyperWeights& w, const HyperParams& p,
                   const Tensor& y, const Tensor& post, const Tensor& comb) {
  check_hyper_pre(x, w, p, y, post, comb);
  int64_t rows = x.shape[0], c = x.shape[2];
  int r = static_cast<int>(x.shape[1]);
  with_activation("hyper_pre", x.dtype, [&](auto type) {
    using T = decltype(type);
    ctx.threads.run(rows, 1, [&](int64_t begin, int64_t end, int) {
      float m[kMaxMaps], pre[kMaxStreams];
      for (int64_t t = begin; t < end; ++t) {
        mixes_double<T>(x, t, w.fn, p.norm_eps, m);
        hyper_maps(m, r, w, p, pre, post.at<float>(t), comb.at<float>(t));
        collapse(ctx.kernels.rows->of(type), x.at<const T>(t), x.stride[1], pre, r, c, y.at<T>(t));
      }
    });
  });
}

}  // namespace hadal
