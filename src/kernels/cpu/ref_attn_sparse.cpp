// Reference of V4 attention.
#include "kernels/cpu/ref_attn_sparse.h"

#include "kernels/cpu/ref_attn.h"

namespace hadal {

void ref_sparse_attention(Context& ctx, const Batch& batch, const SparseAttention& a) {
  check_sparse(batch, a);
  int64_t heads = a.q.shape[1], d = a.q.shape[2];
  const float* sink = a.sink.at<const float>();
  with_activation("sparse_attention", a.q.dtype, [&](auto type) {
    using T = decltype(type);
    ctx.threads.run(batch.rows * heads, grain_of(d * 64), [&](int64_t begin, int64_t end, int) {
      KeyList<T> list;
      for (int64_t i = begin; i < end; ++i) {
        int64_t t = i / heads, h = i % heads;
        if (i == begin || h == 0) list = sparse_keys<T>(batch, a, t);
        attend_head(a.q.at<const T>(t, h), list, d, d, a.scale, sink[h], a.out.at<T>(t, h));
      }
    });
  });
}

}  // namespace hadal
