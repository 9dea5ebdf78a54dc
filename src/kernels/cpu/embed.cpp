// Embedding look-up.
#include "kernels/embed.h"

#include "kernels/cpu/element.h"
#include "kernels/cpu/ops.h"

namespace hadal::cpu {
namespace {

template <class W, class T>
void embed_rows(Context& ctx, const int32_t* ids, const Tensor& table, const Tensor& out) {
  int64_t rows = out.shape[0], streams = out.shape[1], c = out.shape[2], v = table.shape[0];
  ctx.threads.run(rows, grain_of(streams * c), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      HADAL_CHECK(ids[t] >= 0 && ids[t] < v, "[embed] token id " + std::to_string(ids[t]) +
                                                 " outside [0, " + std::to_string(v) + ")");
      const W* src = table.at<const W>(ids[t]);
      for (int64_t r = 0; r < streams; ++r) {
        T* dst = out.at<T>(t, r);
        for (int64_t i = 0; i < c; ++i) store(dst[i], load(src[i]));
      }
    }
  });
}

}  // namespace

void embed(Context& ctx, const int32_t* ids, const Tensor& table, const Tensor& out) {
  HADAL_CHECK(out.rank == 3 && table.rank == 2 && out.shape[2] == table.shape[1],
              "[embed] table " + table.describe() + ", out " + out.describe());
  with_weight("embed", table.dtype, [&](auto w) {
    with_activation("embed", out.dtype,
                    [&](auto t) { embed_rows<decltype(w), decltype(t)>(ctx, ids, table, out); });
  });
}

}  // namespace hadal::cpu
