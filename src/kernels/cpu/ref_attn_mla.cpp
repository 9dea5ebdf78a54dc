// Reference of absorbed MLA attention.
#include "kernels/cpu/ref_attn_mla.h"

#include "kernels/cpu/ref_attn.h"

namespace hadal {

void ref_mla_attention(Context& ctx, const Batch& batch, const MlaAttention& a) {
  check_mla(batch, a);
  int64_t heads = a.q.shape[1], d = a.q.shape[2], dv = a.out.shape[2];
  with_activation("mla_attention", a.q.dtype, [&](auto type) {
    using T = decltype(type);
    ctx.threads.run(batch.rows * heads, grain_of(d * 64), [&](int64_t begin, int64_t end, int) {
      KeyList<T> list;
      for (int64_t i = begin; i < end; ++i) {
        int64_t t = i / heads, h = i % heads;
        if (i == begin || h == 0) list = mla_keys<T>(batch, a, t);
        attend_head(a.q.at<const T>(t, h), list, d, dv, a.scale,
                    -std::numeric_limits<float>::infinity(), a.out.at<T>(t, h));
      }
    });
  });
}

}  // namespace hadal
