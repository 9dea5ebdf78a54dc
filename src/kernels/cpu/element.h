// What the CPU ops share: the switch from a tensor's dtype to a template, shape checks that name
// both sides, how much work is worth a second thread, and per-thread scratch that only grows.
#pragma once

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "base/tensor.h"
#include "kernels/cpu/scratch.h"

namespace hadal {

struct F16 {
  uint16_t bits;
};
inline float load(F16 v) { return f16_to_f32(v.bits); }

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::kF32;
  if constexpr (std::is_same_v<T, BF16>) return DType::kBF16;
  if constexpr (std::is_same_v<T, F16>) return DType::kF16;
}

// The value of x as T keeps it.
template <class T>
inline float rounded(float x) {
  T t;
  store(t, x);
  return load(t);
}

// Calls f(T{}) with the element type of an activation.
template <class F>
void with_activation(const char* op, DType t, F&& f) {
  if (t == DType::kF32) return f(float{});
  HADAL_CHECK(t == DType::kBF16, std::string("[") + op + "] activation of dtype " + dtype_name(t) +
                                     ", not F32 or BF16");
  f(BF16{});
}

// The same for a plain weight.
template <class F>
void with_weight(const char* op, DType t, F&& f) {
  if (t == DType::kF16) return f(F16{});
  with_activation(op, t, f);
}

inline void expect_shape(const char* op, const char* name, const Tensor& t,
                         std::initializer_list<int64_t> dims) {
  bool same = t.rank == static_cast<int>(dims.size());
  for (int i = 0; same && i < t.rank; ++i) same = t.shape[i] == dims.begin()[i];
  if (same) return;
  std::string want;
  for (int64_t d : dims) want += (want.empty() ? "" : ", ") + std::to_string(d);
  HADAL_CHECK(same,
              std::string("[") + op + "] " + name + " is " + t.describe() + ", not [" + want + "]");
}

inline void expect_dtype(const char* op, const char* name, const Tensor& t, DType want) {
  HADAL_CHECK(t.dtype == want, std::string("[") + op + "] " + name + " is " + t.describe() +
                                   ", not " + dtype_name(want));
}

// Elements of the last dimension must be adjacent.
inline void expect_adjacent(const char* op, const char* name, const Tensor& t) {
  HADAL_CHECK(t.rank > 0 && (t.stride[t.rank - 1] == 1 || t.shape[t.rank - 1] <= 1),
              std::string("[") + op + "] " + name + " has strided columns: " + t.describe());
}

// Items per range of ThreadPool::run so that a range is worth waking a thread for: about 8 thousand
// simple operations, a few microseconds.
inline int64_t grain_of(int64_t operations_per_item) {
  return std::max<int64_t>(1, 8192 / std::max<int64_t>(1, operations_per_item));
}

// At least n elements, 64-byte aligned, kept by the thread from call to call. Tag tells users in
// one call apart.
template <class T, class Tag>
T* scratch(int64_t n) {
  thread_local Scratch buffer;
  return static_cast<T*>(buffer.grow(n * static_cast<int64_t>(sizeof(T))));
}

// In double, eight chains.
template <class A, class B>
inline double dot_double(const A* a, const B* b, int64_t n) {
  double lane[8] = {}, total = 0;
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int l = 0; l < 8; ++l) lane[l] += double{load(a[i + l])} * double{load(b[i + l])};
  for (; i < n; ++i) total += double{load(a[i])} * double{load(b[i])};
  for (double v : lane) total += v;
  return total;
}

}  // namespace hadal
