// The kernel language: one kernel source for nvcc, for clang as HIP compiler, and for g++, where
// every GPU thread is a fiber on the CPU (kl_fiber.h) and the warp width is chosen at run time.
// Kernels take one plain struct, use KL_SHARED memory, the barrier and the warp operations below,
// and never assume a warp width. Sums run in a fixed order, so results do not depend on timing.
//
// Rules that the fiber runner checks: blocks are whole warps; all threads of a block reach the same
// barrier; all lanes of a warp reach the same warp operation. Shared memory starts as NaN.
//
// Above each kernel stand its limits, held by tools/kernel_resources.py on what clang makes for
// AMD: up to 64 vector registers let eight waves share a SIMD, 96 five, 128 four.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/gpu.h"
#include "base/tensor.h"

#if defined(__HIP__)
#include <hip/hip_runtime.h>
#define KL_GPU 1
#define KL_TARGET hip
#elif defined(__CUDACC__)
#include <cuda_runtime.h>
#define KL_GPU 1
#define KL_TARGET cuda
#else
#include "kernels/gpu/kl_fiber.h"
#define KL_TARGET fiber
#endif

#ifdef KL_GPU
// template <...> KL_KERNEL(block size) name(Params p) { ... }
// KL_KERNEL(block size, n): with so few registers that n blocks run at once on an NVIDIA
// multiprocessor, n waves on an AMD SIMD.
#define KL_KERNEL(...) __global__ void __launch_bounds__(__VA_ARGS__)
#define KL_DEVICE __device__ inline
// KL_SHARED(float, name, [32][8]);  — of the block, unwritten at its start.
#define KL_SHARED(type, name, dims) __shared__ type name dims
// The shared bytes that launch() asked for, as an array of `type`.
#define KL_DYNAMIC_SHARED(type, name)          \
  extern __shared__ float4 kl_dynamic_bytes[]; \
  type* name = reinterpret_cast<type*>(kl_dynamic_bytes)
#define KL_HERE \
  {}
#define KL_UNROLL _Pragma("unroll")
#define KL_PRAGMA(text) _Pragma(#text)
#define KL_UNROLL_BY(n) KL_PRAGMA(unroll n)
#else
#define KL_KERNEL(...) static void
#define KL_DEVICE inline
#define KL_SHARED(type, name, dims)   \
  static thread_local type name dims; \
  ::hadal::fiber::kl::poison_once(&name, sizeof(name))
#define KL_DYNAMIC_SHARED(type, name) \
  type* name = static_cast<type*>(::hadal::fiber::kl::dynamic_shared())
#define KL_HERE ::std::source_location::current()
#define KL_UNROLL
#define KL_UNROLL_BY(n)
#endif

namespace hadal {

// Strides of a Tensor on the device, for kernels.
template <class T>
struct View {
  T* data = nullptr;
  int64_t s0 = 0, s1 = 0, s2 = 0;  // in elements
  HADAL_HD T* at(int64_t i, int64_t j = 0, int64_t k = 0) const {
    return data + i * s0 + j * s1 + k * s2;
  }
  HADAL_HD explicit operator bool() const { return data != nullptr; }
};

template <class T>
View<T> view(const Tensor& t) {
  return {static_cast<T*>(t.data), t.stride[0], t.stride[1], t.stride[2]};
}

// A vector of any plain dtype, read as fp32.
struct AnyVector {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  HADAL_HD float operator[](int64_t i) const {
    if (dtype == DType::kF32) return static_cast<const float*>(data)[i];
    if (dtype == DType::kBF16) return bf16_to_f32(static_cast<const BF16*>(data)[i]);
    return f16_to_f32(static_cast<const uint16_t*>(data)[i]);
  }
  HADAL_HD explicit operator bool() const { return data != nullptr; }
};

inline AnyVector any_vector(const Tensor& t) { return {t.data, t.dtype}; }

// The value of x as an activation of type T keeps it.
template <class T>
HADAL_HD inline float rounded_to(float x) {
  T t;
  store(t, x);
  return load(t);
}

// kE2M1[code] without a table, which device code cannot index.
HADAL_HD inline float e2m1_to_f32(uint32_t code) {
  uint32_t sign = (code & 8u) << 28, e = (code >> 1) & 3u, m = code & 1u;
  uint32_t magnitude = e ? (e + 126) << 23 | m << 22 : m * 0x3f000000u;
  return std::bit_cast<float>(sign | magnitude);
}

namespace KL_TARGET::kl {

#ifdef KL_GPU
struct Site {};
KL_DEVICE int thread() { return static_cast<int>(threadIdx.x); }
KL_DEVICE int threads() { return static_cast<int>(blockDim.x); }
KL_DEVICE int64_t block() { return blockIdx.x; }
KL_DEVICE int64_t block_y() { return blockIdx.y; }
KL_DEVICE int64_t block_z() { return blockIdx.z; }
KL_DEVICE int64_t blocks() { return gridDim.x; }
KL_DEVICE void sync(Site = {}) { __syncthreads(); }
KL_DEVICE int atomic_add(int* p, int v) { return atomicAdd(p, v); }
KL_DEVICE int count_bits(uint64_t v) { return __popcll(v); }
KL_DEVICE float exp_fast(float x) { return __expf(x); }
#ifdef __HIP__
KL_DEVICE float reciprocal_fast(float x) { return __builtin_amdgcn_rcpf(x); }
KL_DEVICE constexpr int warp_size() { return 64; }
template <class T>
KL_DEVICE T shfl_xor(T v, int mask, Site = {}) {
  return __shfl_xor(v, mask);
}
template <class T>
KL_DEVICE T shfl_down(T v, int delta, Site = {}) {
  return __shfl_down(v, delta);
}
template <class T>
KL_DEVICE T shfl(T v, int lane, Site = {}) {
  return __shfl(v, lane);
}
KL_DEVICE uint64_t ballot(bool v, Site = {}) { return __ballot(v); }
#else
// Within one unit in the last place; 0 from 2^126 on.
KL_DEVICE float reciprocal_fast(float x) { return __fdividef(1.0f, x); }
KL_DEVICE constexpr int warp_size() { return 32; }
template <class T>
KL_DEVICE T shfl_xor(T v, int mask, Site = {}) {
  return __shfl_xor_sync(~0u, v, mask);
}
template <class T>
KL_DEVICE T shfl_down(T v, int delta, Site = {}) {
  return __shfl_down_sync(~0u, v, delta);
}
template <class T>
KL_DEVICE T shfl(T v, int lane, Site = {}) {
  return __shfl_sync(~0u, v, lane);
}
KL_DEVICE uint64_t ballot(bool v, Site = {}) { return __ballot_sync(~0u, v); }
#endif

// Blocks along x for `items` of work; kernels stride by blocks(), so any number is right.
inline int64_t grid(GpuStream, int64_t items) { return items < (1 << 20) ? items : 1 << 20; }

struct Grid {
  int64_t x = 0, y = 1, z = 1;
};

// Puts kernel(params) on the stream; an empty grid is no work. A launch that the driver refuses is
// a broken invariant.
template <class P>
void launch(void (*kernel)(P), Grid g, int block, int64_t shared, GpuStream stream, const P& p) {
  if (g.x == 0 || g.y == 0 || g.z == 0) return;
  dim3 size(static_cast<unsigned>(g.x), static_cast<unsigned>(g.y), static_cast<unsigned>(g.z));
#ifdef __HIP__
  kernel<<<size, block, shared, static_cast<hipStream_t>(stream)>>>(p);
  hipError_t e = hipGetLastError();
  HADAL_CHECK(e == hipSuccess, std::string("kernel launch: ") + hipGetErrorString(e));
#else
  if (shared > 48 << 10)  // more must be asked for; the driver refuses what the card has not
    cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                         cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
  kernel<<<size, block, shared, static_cast<cudaStream_t>(stream)>>>(p);
  cudaError_t e = cudaGetLastError();
  HADAL_CHECK(e == cudaSuccess, std::string("kernel launch: ") + cudaGetErrorString(e));
#endif
}
#endif

// a * b + c, rounded once: where two kernels must agree bit for bit, since compilers choose on
// their own which products they fuse.
KL_DEVICE float fma(float a, float b, float c) { return fmaf(a, b, c); }
KL_DEVICE float exp_accurate(float x) { return expf(x); }
KL_DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
KL_DEVICE float infinity() { return std::bit_cast<float>(0x7f800000u); }
KL_DEVICE float quiet_nan() { return std::bit_cast<float>(0x7fc00000u); }
// NaN on either side gives NaN, so that a bad input is not hidden by a maximum.
KL_DEVICE float max_of(float a, float b) { return a >= b || a != a ? a : b; }
KL_DEVICE float min_of(float a, float b) { return a <= b || a != a ? a : b; }
KL_DEVICE float clamp_to(float x, float limit) {
  return x > limit ? limit : x < -limit ? -limit : x;
}

KL_DEVICE int lane() { return thread() % warp_size(); }
KL_DEVICE int warp() { return thread() / warp_size(); }
KL_DEVICE int warps() { return threads() / warp_size(); }
inline constexpr int kMaxWarps = 32;

struct Sum {
  KL_DEVICE static float of(float a, float b) { return a + b; }
};
struct Max {
  KL_DEVICE static float of(float a, float b) { return max_of(a, b); }
};

// Op over the lanes of the warp, the same value in each.
template <class Op>
KL_DEVICE float warp_reduce(float v, Site at = KL_HERE) {
  for (int m = warp_size() / 2; m > 0; m /= 2) v = Op::of(v, shfl_xor(v, m, at));
  return v;
}
KL_DEVICE float warp_sum(float v, Site at = KL_HERE) { return warp_reduce<Sum>(v, at); }
KL_DEVICE float warp_max(float v, Site at = KL_HERE) { return warp_reduce<Max>(v, at); }

// Lanes kHalf apart swap halves of v, so that half as many values are left.
template <int kHalf>
KL_DEVICE void fold_sums(float (&v)[32], Site at) {
  bool upper = lane() & kHalf;
  KL_UNROLL
  for (int i = 0; i < kHalf; ++i) {
    float keep = upper ? v[i + kHalf] : v[i], give = upper ? v[i] : v[i + kHalf];
    v[i] = keep + shfl_xor(give, kHalf, at);
  }
  if constexpr (kHalf > 1) fold_sums<kHalf / 2>(v, at);
}

// Sums 32 values over the lanes of the warp with 31 shuffles (64 lanes: one more). Lane l gets the
// sum of v[l % 32], so a wide warp holds each sum twice.
KL_DEVICE float warp_sums(float (&v)[32], Site at = KL_HERE) {
  fold_sums<16>(v, at);
  return warp_size() == 64 ? v[0] + shfl_xor(v[0], 32, at) : v[0];
}

// Is multiply_bf16 worth calling?
#ifdef __HIP__
inline constexpr bool kMatrixUnits = false;
#else
inline constexpr bool kMatrixUnits = true;
#endif

// d += a b by each 32 neighbouring lanes, whatever the warp width: a of 16 rows and 16 columns, b
// of 16 rows and 8 columns, both bf16, two to a word. With g = lane % 32 / 4 and t = lane % 4 a
// lane holds, in a: columns 2t and 2t + 1 of rows g and g + 8, then columns 2t + 8 and 2t + 9 of
// the same; in b: rows 2t and 2t + 1, then 2t + 8 and 2t + 9, of column g; in d: columns 2t and 2t
// + 1 of row g, then of row g + 8. A matrix unit on NVIDIA; fibers exchange the numbers; not for
// AMD.
KL_DEVICE void multiply_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                             [[maybe_unused]] Site at = KL_HERE) {
#if defined(__CUDACC__) && !defined(__HIP__)
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  int base = lane() / 32 * 32, g = lane() % 32 / 4, t = lane() % 4;
  auto dot = [](uint32_t x, uint32_t y) {
    return std::bit_cast<float>(x << 16) * std::bit_cast<float>(y << 16) +
           std::bit_cast<float>(x & 0xffff0000u) * std::bit_cast<float>(y & 0xffff0000u);
  };
  for (int s = 0; s < 4; ++s) {
    uint32_t row[4], column[2][2];
    KL_UNROLL
    for (int i = 0; i < 4; ++i) row[i] = shfl(a[i], base + g * 4 + s, at);
    KL_UNROLL
    for (int i = 0; i < 4; ++i)
      column[i / 2][i % 2] = shfl(b[i % 2], base + (2 * t + i / 2) * 4 + s, at);
    KL_UNROLL
    for (int i = 0; i < 4; ++i)
      d[i] += dot(row[i / 2], column[i % 2][0]) + dot(row[i / 2 + 2], column[i % 2][1]);
  }
#endif
}

// Op over the threads of the block: lanes as a tree, then warps in order. The same value in each.
template <class Op>
KL_DEVICE float block_reduce(float v, Site at = KL_HERE) {
  KL_SHARED(float, part, [kMaxWarps]);
  v = warp_reduce<Op>(v, at);
  if (lane() == 0) part[warp()] = v;
  sync(at);
  v = part[0];
  for (int w = 1; w < warps(); ++w) v = Op::of(v, part[w]);
  sync(at);  // the next call writes `part`
  return v;
}
KL_DEVICE float block_sum(float v, Site at = KL_HERE) { return block_reduce<Sum>(v, at); }
KL_DEVICE float block_max(float v, Site at = KL_HERE) { return block_reduce<Max>(v, at); }

// The largest value and its index; the lower index among equals. No value may be NaN.
struct Best {
  float value;
  int32_t index;
};
KL_DEVICE Best better(Best a, Best b) {
  return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a;
}
KL_DEVICE Best block_best(Best v, Site at = KL_HERE) {
  KL_SHARED(float, value, [kMaxWarps]);
  KL_SHARED(int32_t, index, [kMaxWarps]);
  for (int m = warp_size() / 2; m > 0; m /= 2) {
    Best other = {shfl_xor(v.value, m, at), shfl_xor(v.index, m, at)};
    v = better(v, other);
  }
  if (lane() == 0) {
    value[warp()] = v.value;
    index[warp()] = v.index;
  }
  sync(at);
  v = {value[0], index[0]};
  for (int w = 1; w < warps(); ++w) v = better(v, Best{value[w], index[w]});
  sync(at);
  return v;
}

// How many threads before this one have `flag`, and how many of the block have it.
struct Rank {
  int before, total;
};
KL_DEVICE Rank block_rank(bool flag, Site at = KL_HERE) {
  KL_SHARED(int, part, [kMaxWarps]);
  uint64_t bits = ballot(flag, at);
  if (lane() == 0) part[warp()] = count_bits(bits);
  sync(at);
  Rank r = {count_bits(bits & ((uint64_t{1} << lane()) - 1)), 0};
  for (int w = 0; w < warps(); ++w) {
    if (w < warp()) r.before += part[w];
    r.total += part[w];
  }
  sync(at);
  return r;
}

}  // namespace KL_TARGET::kl
}  // namespace hadal
