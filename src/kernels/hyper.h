// mHC, manifold-constrained hyper-connections: R residual streams. Source: spec V4 3.8,
// arXiv 2512.24880. All in fp32; streams and y are rounded once to their dtype. Independent of T.
#pragma once

#include "base/tensor.h"
#include "kernels/op.h"

namespace hadal {

struct HyperWeights {
  Tensor fn;     // [2R + R*R, R*C] f32 (head: [R, R*C])
  Tensor base;   // [2R + R*R] f32     (head: [R])
  Tensor scale;  // [3] f32            (head: [1])
};

struct HyperParams {
  float norm_eps = 1e-6f;  // of the RMS over all R*C values
  float eps = 1e-6f;       // hc_eps: added to pre and in every Sinkhorn division
  int sinkhorn_iters = 20;
};

// The 2R + R*R mixes of each token and the collapse of the streams:
// y[t] = sum_j pre[j] X[t, j]; post[t, k]; comb[t, j, k] (j source stream, k destination).
// X [T, R, C], y [T, C] f32|bf16, post [T, R] f32, comb [T, R, R] f32.
using HyperPreFn = void(Context&, const Tensor& x, const HyperWeights& w, const HyperParams& p,
                        const Tensor& y, const Tensor& post, const Tensor& comb);
void hyper_pre(Context& ctx, const Tensor& x, const HyperWeights& w, const HyperParams& p,
               const Tensor& y, const Tensor& post, const Tensor& comb);

// X[t, k] <- post[t, k] * a[t] + sum_j comb[t, j, k] X[t, j].   a [T, C], X [T, R, C] in place.
void hyper_post(Context& ctx, const Tensor& a, const Tensor& post, const Tensor& comb,
                const Tensor& x);

// The seam between two sub-layers: hyper_post(a, post, comb, x), then hyper_pre(x, w, p, y, post,
// comb). `a` is the branch output that is still pending; empty where none is (the first layer).
void hyper_post_pre(Context& ctx, const Tensor& a, const Tensor& x, const HyperWeights& w,
                    const HyperParams& p, const Tensor& y, const Tensor& post, const Tensor& comb);

// y[t] = sum_j pre[j] X[t, j] with pre from the head's weights. X [T, R, C] -> y [T, C].
void hyper_head(Context& ctx, const Tensor& x, const HyperWeights& w, const HyperParams& p,
                const Tensor& y);

}  // namespace hadal
