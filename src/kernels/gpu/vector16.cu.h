// Sixteen bytes, or the four numbers, that a thread loads or stores at once. Addresses must be
// multiples of that. Part of the portable kernels (kl.h).
#pragma once

#include <type_traits>

#include "kernels/gpu/kl.h"

namespace hadal::KL_TARGET {

struct alignas(16) [[gnu::may_alias]] Vector16 {
  uint32_t word[4];
};

struct alignas(8) [[gnu::may_alias]] Vector8 {
  uint32_t word[2];
};

struct [[gnu::may_alias]] HalfWord {
  uint16_t bits;
};

// Four numbers of type T.
template <class T>
using FourOf = std::conditional_t<sizeof(T) == 2, Vector8, Vector16>;

template <class T>
inline constexpr int kPerVector = 16 / static_cast<int>(sizeof(T));

KL_DEVICE void unpack(const Vector16& v, float (&x)[4]) {
  KL_UNROLL
  for (int i = 0; i < 4; ++i) x[i] = std::bit_cast<float>(v.word[i]);
}

KL_DEVICE void unpack(const Vector8& v, float (&x)[4]) {
  KL_UNROLL
  for (int i = 0; i < 2; ++i) {
    x[2 * i] = std::bit_cast<float>(v.word[i] << 16);
    x[2 * i + 1] = std::bit_cast<float>(v.word[i] & 0xffff0000u);
  }
}

// Eight bf16, the first in the low half of the first word.
KL_DEVICE void unpack(const Vector16& v, float (&x)[8]) {
  KL_UNROLL
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = std::bit_cast<float>(v.word[i] << 16);
    x[2 * i + 1] = std::bit_cast<float>(v.word[i] & 0xffff0000u);
  }
}

KL_DEVICE Vector16 pack(const float* x) {
  Vector16 v;
  KL_UNROLL
  for (int i = 0; i < 4; ++i) v.word[i] = std::bit_cast<uint32_t>(x[i]);
  return v;
}

// Four numbers rounded to T.
template <class T>
KL_DEVICE FourOf<T> pack_four(const float (&x)[4]) {
  if constexpr (sizeof(T) == 4) {
    return pack(x);
  } else {
    Vector8 v;
    KL_UNROLL
    for (int i = 0; i < 2; ++i)
      v.word[i] = f32_to_bf16(x[2 * i]).bits | uint32_t{f32_to_bf16(x[2 * i + 1]).bits} << 16;
    return v;
  }
}

// v, word by word: clang keeps an array of structs that are copied whole out of registers.
KL_DEVICE Vector16 words_of(const Vector16& v) {
  return {{v.word[0], v.word[1], v.word[2], v.word[3]}};
}

template <class T>
KL_DEVICE const Vector16* vectors_at(const T* p) {
  return reinterpret_cast<const Vector16*>(p);
}
template <class T>
KL_DEVICE Vector16* vectors_at(T* p) {
  return reinterpret_cast<Vector16*>(p);
}

// Does every row of t (all but the last dimension) begin at a multiple of 16 bytes and end at one?
inline bool rows_of_vectors(const Tensor& t) {
  int64_t size = dtype_size(t.dtype);
  bool whole = reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && t.rank > 0 &&
               t.stride[t.rank - 1] == 1 && t.shape[t.rank - 1] * size % 16 == 0;
  for (int i = 0; i + 1 < t.rank; ++i) whole = whole && t.stride[i] * size % 16 == 0;
  return whole;
}

}  // namespace hadal::KL_TARGET
