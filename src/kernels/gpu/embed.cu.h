// Embedding look-up: one thread per number. A portable GPU kernel (kl.h); contract in
// kernels/embed.h.
#pragma once

#include "kernels/cpu/element.h"
#include "kernels/embed.h"
#include "kernels/gpu/kl.h"
#include "kernels/gpu/launchers.h"

namespace hadal::KL_TARGET {

inline constexpr int kEmbedThreads = 256;

template <class T>
struct EmbedArgs {
  const int32_t* ids;
  AnyVector table;
  View<T> out;
  int64_t pitch, vocabulary, rows, streams, columns;
};

// limits: vgprs 64, lds 0
template <class T>
KL_KERNEL(kEmbedThreads)
embed_kernel(EmbedArgs<T> a) {
  int64_t step = kl::blocks() * kl::threads();
  for (int64_t n = kl::block() * kl::threads() + kl::thread(); n < a.rows * a.columns; n += step) {
    int64_t t = n / a.columns, c = n % a.columns, id = a.ids[t];
    bool known = id >= 0 && id < a.vocabulary;
    float v = known ? a.table[id * a.pitch + c] : kl::quiet_nan();
    for (int64_t r = 0; r < a.streams; ++r) store(*a.out.at(t, r, c), v);
  }
}

void embed(GpuStream s, const int32_t* ids, const Tensor& table, const Tensor& out) {
  HADAL_CHECK(out.rank == 3 && table.rank == 2 && out.shape[2] == table.shape[1],
              "[embed] table " + table.describe() + ", out " + out.describe());
  int64_t rows = out.shape[0], columns = out.shape[2];
  int64_t blocks = (rows * columns + kEmbedThreads - 1) / kEmbedThreads;
  with_activation("embed", out.dtype, [&](auto type) {
    using T = decltype(type);
    kl::launch(embed_kernel<T>, {kl::grid(s, blocks)}, kEmbedThreads, 0, s,
               EmbedArgs<T>{ids, any_vector(table), view<T>(out), table.stride[0], table.shape[0],
                            rows, out.shape[1], columns});
  });
}

}  // namespace hadal::KL_TARGET
