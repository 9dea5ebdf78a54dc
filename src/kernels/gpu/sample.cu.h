// The next token of each row: the best logit, or a draw by adding Gumbel noise to logits /
// temperature and taking the best. The noise of a token is a function of (seed, index, id) alone.
// One block per row. A portable GPU kernel (kl.h).
#pragma once

#include "kernels/cpu/element.h"
#include "kernels/gpu/kl.h"
#include "kernels/gpu/launchers.h"

namespace hadal::KL_TARGET {

inline constexpr int kSampleThreads = 256;

template <class T>
struct SampleArgs {
  View<T> logits;
  const float* temperature;
  const uint64_t *seed, *index;
  int32_t *token, *bad;
  int64_t rows, vocabulary;
};

KL_DEVICE uint64_t sample_mix(uint64_t x) {  // the finaliser of SplitMix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// -log(-log(u)) with u uniform over 2^24 midpoints of (0, 1).
KL_DEVICE float sample_noise(uint64_t draw, int64_t id) {
  uint64_t bits = sample_mix(draw + static_cast<uint64_t>(id + 1) * 0x9e3779b97f4a7c15u) >> 40;
  // log1p near u = 1, where 1 - u keeps more digits than u.
  float half = (static_cast<float>(bits) + 0.5f) * 0x1p-24f;
  float above = (static_cast<float>(0xffffffu - bits) + 0.5f) * 0x1p-24f;
  return -logf(half < 0.5f ? -logf(half) : -log1pf(-above));
}

// limits: vgprs 64, lds 1024
template <class T>
KL_KERNEL(kSampleThreads)
sample_kernel(SampleArgs<T> a) {
  KL_SHARED(int, bad, );
  for (int64_t t = kl::block(); t < a.rows; t += kl::blocks()) {
    if (kl::thread() == 0) bad = 0;
    kl::sync();
    float temperature = a.temperature[t];
    uint64_t draw = sample_mix(sample_mix(a.seed[t]) + (a.index[t] + 1) * 0x9e3779b97f4a7c15u);
    kl::Best best = {-kl::infinity(), static_cast<int32_t>(a.vocabulary)};
    int mine = 0;
    for (int64_t id = kl::thread(); id < a.vocabulary; id += kl::threads()) {
      float v = load(*a.logits.at(t, id));
      mine += !(fabsf(v) <= 3.4028235e38f);
      if (temperature > 0) v = v / temperature + sample_noise(draw, id);
      best = kl::better(best, {v, static_cast<int32_t>(id)});
    }
    if (mine) kl::atomic_add(&bad, mine);  // whole numbers: any order gives the same sum
    best = kl::block_best(best);           // also a barrier for `bad`
    if (kl::thread() == 0) {
      a.bad[t] = bad;
      a.token[t] = bad ? -1 : best.index;
    }
    kl::sync();  // the next row resets the count
  }
}

void sample(GpuStream s, const Tensor& logits, const float* temperature, const uint64_t* seed,
            const uint64_t* index, int32_t* token, int32_t* bad) {
  expect_adjacent("sample", "logits", logits);
  with_activation("sample", logits.dtype, [&](auto type) {
    using T = decltype(type);
    kl::launch(sample_kernel<T>, {kl::grid(s, logits.shape[0])}, kSampleThreads, 0, s,
               SampleArgs<T>{view<T>(logits), temperature, seed, index, token, bad, logits.shape[0],
                             logits.shape[1]});
  });
}

}  // namespace hadal::KL_TARGET
