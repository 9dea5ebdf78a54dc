// A non-owning view of numbers in memory: pointer, dtype, shape, strides. Owners are elsewhere
// (a mapped checkpoint, a scratch arena, a cache pool) and outlive their views.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/dtype.h"
#include "base/status.h"

namespace hadal {

struct Tensor {
  static constexpr int kMaxRank = 4;

  void* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<int64_t, kMaxRank> shape{};
  std::array<int64_t, kMaxRank> stride{};  // in elements

  Tensor() = default;
  // A packed row-major view. A read-only owner (a mapped file) may pass its pointer too: weights
  // are never written through.
  Tensor(const void* p, DType t, std::initializer_list<int64_t> dims)
      : data(const_cast<void*>(p)), dtype(t), rank(static_cast<int>(dims.size())) {
    int i = 0;
    for (int64_t d : dims) shape[i++] = d;
    int64_t s = 1;
    for (i = rank - 1; i >= 0; --i) {
      stride[i] = s;
      s *= shape[i];
    }
  }

  bool empty() const { return data == nullptr; }
  int64_t size() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= shape[i];
    return n;
  }
  int64_t bytes() const { return size() * dtype_size(dtype); }
  bool packed() const {
    int64_t s = 1;
    for (int i = rank - 1; i >= 0; --i) {
      if (shape[i] != 1 && stride[i] != s) return false;
      s *= shape[i];
    }
    return true;
  }

  // Pointer to element (i, j, ...); missing trailing indices are 0.
  template <class T>
  T* at(int64_t i = 0, int64_t j = 0, int64_t k = 0) const {
    return static_cast<T*>(data) + i * stride[0] + j * stride[1] + k * stride[2];
  }

  // The view with dimension `dim` cut to [begin, end).
  Tensor slice(int dim, int64_t begin, int64_t end) const {
    Tensor t = *this;
    t.data = static_cast<char*>(data) + begin * stride[dim] * dtype_size(dtype);
    t.shape[dim] = end - begin;
    return t;
  }
  // The same packed numbers under another shape of equal size.
  Tensor reshape(std::initializer_list<int64_t> dims) const {
    HADAL_CHECK(packed(), "reshape of a strided view: " + describe());
    Tensor t(data, dtype, dims);
    HADAL_CHECK(t.size() == size(), "reshape of " + describe() + " to " + t.describe());
    return t;
  }

  // "BF16 [128, 7168]"
  std::string describe() const {
    std::string s = std::string(dtype_name(dtype)) + " [";
    for (int i = 0; i < rank; ++i) s += (i ? ", " : "") + std::to_string(shape[i]);
    return s + "]";
  }
};

}  // namespace hadal
