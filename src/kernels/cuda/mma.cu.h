// The tensor core product of a warp, m16n8k16 with fp32 sums, and asynchronous copies to shared
// memory: for sm_80 and newer, and emulated on fibers of 32-wide warps, so that kernels made of
// them are tested without a GPU. Kernel language: kernels/gpu/kl.h.
// Source of the maps: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type".
#pragma once

#include <deque>
#include <vector>

#include "kernels/gpu/kl.h"

namespace hadal::KL_TARGET {

struct At {
  int row, column;
  constexpr bool operator==(const At&) const = default;
};

// The element of A [16, 16], B [16, 8] and C [16, 8] that a lane holds. A and B: in the low (0) or
// high (1) half of a register; C: one per register.
HADAL_HD constexpr At mma_a(int lane, int reg, int half) {
  return {lane / 4 + reg % 2 * 8, lane % 4 * 2 + half + reg / 2 * 8};
}
HADAL_HD constexpr At mma_b(int lane, int reg, int half) {
  return {lane % 4 * 2 + half + reg * 8, lane / 4};
}
HADAL_HD constexpr At mma_c(int lane, int reg) {
  return {lane / 4 + reg / 2 * 8, lane % 4 * 2 + reg % 2};
}

enum class Half { kF16, kBF16 };

#ifndef KL_GPU
template <Half kHalf>
float half_value(uint32_t bits) {
  if constexpr (kHalf == Half::kF16) return f16_to_f32(static_cast<uint16_t>(bits));
  return bf16_to_f32({static_cast<uint16_t>(bits)});
}

// Written from what mma_c's lane needs, not from what mma_a's and mma_b's lanes have.
template <Half kHalf>
void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], kl::Site at = KL_HERE) {
  HADAL_CHECK(kl::warp_size() == 32, "mma is for warps of 32");
  int group = kl::lane() / 4, quad = kl::lane() % 4;
  double sum[4] = {c[0], c[1], c[2], c[3]};
  for (int from = 0; from < 4; ++from) {  // the lane of a quad that holds columns 2 from, + 8
    uint64_t low = a[0] | uint64_t{a[2]} << 32, high = a[1] | uint64_t{a[3]} << 32;
    uint64_t left = kl::shfl(low, group * 4 + from, at);    // row `group`
    uint64_t right = kl::shfl(high, group * 4 + from, at);  // row `group` + 8
    for (int j = 0; j < 2; ++j) {
      uint64_t column = kl::shfl(b[0] | uint64_t{b[1]} << 32, (2 * quad + j) * 4 + from, at);
      for (int part = 0; part < 64; part += 16) {
        double y = half_value<kHalf>(static_cast<uint32_t>(column >> part & 0xffff));
        sum[j] += half_value<kHalf>(static_cast<uint32_t>(left >> part & 0xffff)) * y;
        sum[2 + j] += half_value<kHalf>(static_cast<uint32_t>(right >> part & 0xffff)) * y;
      }
    }
  }
  for (int i = 0; i < 4; ++i) c[i] = static_cast<float>(sum[i]);
}

// A thread's copies that are under way, in groups. They happen as late as they may: when the thread
// waits for their group.
struct Copies {
  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
  };
  std::vector<Copy> open;
  std::deque<std::vector<Copy>> groups;
};
inline Copies& copies_of_thread() {
  thread_local std::vector<Copies> all(1024);
  return all[kl::thread()];
}
inline void copy_async16(void* shared, const void* from) {
  copies_of_thread().open.push_back({shared, from, 16});
}
inline void copy_async4(void* shared, const void* from) {
  copies_of_thread().open.push_back({shared, from, 4});
}
inline void copies_end_group() {
  Copies& mine = copies_of_thread();
  mine.groups.push_back(std::move(mine.open));
  mine.open.clear();
}
template <int kGroups>
void copies_wait() {
  Copies& mine = copies_of_thread();
  for (; mine.groups.size() > kGroups; mine.groups.pop_front())
    for (auto& copy : mine.groups.front()) std::memcpy(copy.to, copy.from, copy.bytes);
}

template <class P>
void allow_shared(void (*)(P), int) {}
inline int64_t most_shared() { return 227 * 1024; }
#else
// c += a b
template <Half kHalf>
KL_DEVICE void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (kHalf == Half::kF16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

KL_DEVICE uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
KL_DEVICE void copy_async16(void* shared, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(shared_address(shared)),
               "l"(from)
               : "memory");
}
KL_DEVICE void copy_async4(void* shared, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(shared)), "l"(from)
               : "memory");
}
KL_DEVICE void copies_end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until this thread's copies are there, but for those of its last kGroups groups.
template <int kGroups>
KL_DEVICE void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

inline void mma_check(cudaError_t e) {
  HADAL_CHECK(e == cudaSuccess, std::string("[mma_linear] ") + cudaGetErrorString(e));
}
// Lets a kernel ask for more dynamic shared memory than the 48 KB that all cards have.
template <class P>
void allow_shared(void (*kernel)(P), int bytes) {
  mma_check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}
// Shared memory that a block can have on the current device.
inline int64_t most_shared() {
  int device = 0, bytes = 0;
  mma_check(cudaGetDevice(&device));
  mma_check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return bytes;
}
#endif

KL_DEVICE uint32_t pack_bf16(float low, float high) {
#ifdef KL_GPU
  uint32_t v;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
  return v;
#else
  return f32_to_bf16(low).bits | uint32_t{f32_to_bf16(high).bits} << 16;
#endif
}

// Two bf16 each; exact here, since one factor is a power of two.
KL_DEVICE uint32_t times_bf16(uint32_t a, uint32_t b) {
#ifdef KL_GPU
  uint32_t v;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(v) : "r"(a), "r"(b), "r"(0x80008000u));
  return v;
#else
  auto value = [](uint32_t bits) { return bf16_to_f32({static_cast<uint16_t>(bits)}); };
  return pack_bf16(value(a) * value(b), value(a >> 16) * value(b >> 16));
#endif
}

KL_DEVICE uint32_t low_halves(uint32_t a, uint32_t b) { return (a & 0xffffu) | b << 16; }
KL_DEVICE uint32_t high_halves(uint32_t a, uint32_t b) { return a >> 16 | (b & 0xffff0000u); }

// e4m3_to_f32 as f16, which has all its values.
KL_DEVICE uint32_t e4m3_to_f16(uint32_t code) {
  uint32_t sign = (code & 0x80u) << 8, e = code >> 3 & 15, m = code & 7u;
  if ((code & 0x7fu) == 0x7fu) return sign | 0x7e00u;
  if (e) return sign | (e + 8) << 10 | m << 7;
  uint32_t top = m >= 4 ? 2 : m >= 2;  // m / 512 = (1 + ...) 2^(top - 9)
  return m ? sign | (top + 6) << 10 | (m << (10 - top) & 0x3ffu) : sign;
}

// Four e4m3 codes, as two words of two f16.
KL_DEVICE void e4m3x4_to_f16(uint32_t v, uint32_t (&out)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  asm("{.reg .b16 a, b; mov.b32 {a, b}, %2;"
      " cvt.rn.f16x2.e4m3x2 %0, a; cvt.rn.f16x2.e4m3x2 %1, b;}"
      : "=r"(out[0]), "=r"(out[1])
      : "r"(v));
#else
  for (int i = 0; i < 2; ++i)
    out[i] = e4m3_to_f16(v >> 16 * i & 255) | e4m3_to_f16(v >> (16 * i + 8) & 255) << 16;
#endif
}

// Codes i and i + 4 of eight e2m1 codes, as two bf16 that are 2^-126 of their values.
KL_DEVICE uint32_t e2m1_to_bf16(uint32_t v, int i) {
  uint32_t sign = v << (12 - 4 * i) & 0x80008000u;
  uint32_t rest = (i < 2 ? v << (6 - 4 * i) : v >> (4 * i - 6)) & 0x01c001c0u;
  return sign | rest;
}

}  // namespace hadal::KL_TARGET
