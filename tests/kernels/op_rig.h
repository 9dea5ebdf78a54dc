// What the op tests share: a context with a chosen table of kernels, tensors that own their
// storage and start poisoned, random values, and comparisons with double-precision results.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "kernels/dispatch/kernels.h"

namespace hadal::test {

// What the tuned candidates may use here.
inline Device this_device() {
  static const Device device = detect_device();
  return device;
}

struct Rig {
  explicit Rig(int n = 2, Device level = this_device())
      : device(level), threads(n), kernels(choose_kernels(level)) {}
  Device device;
  ThreadPool threads;
  Kernels kernels;
  Context ctx{threads, kernels};
};

// The instruction sets that this machine has, plainest first: for ops whose row loops are chosen
// by it.
inline std::vector<Device> levels() {
  Device here = this_device();
  std::vector<Device> all = {{"ref", false, false, false}};
  if (here.avx2) all.push_back({"avx2", true, false, false});
  if (here.avx512) all.push_back({"avx512", true, true, false});
  return all;
}

// TEST whose body runs once for each level, with `rig` chosen for it.
#define TEST_ROWS(suite_, test_)                       \
  static void suite_##_##test_(hadal::test::Rig& rig); \
  TEST(suite_, test_) {                                \
    for (const Device& level : levels()) {             \
      SCOPED_TRACE(level.name);                        \
      Rig rig(2, level);                               \
      suite_##_##test_(rig);                           \
      if (HasFatalFailure()) return;                   \
    }                                                  \
  }                                                    \
  static void suite_##_##test_([[maybe_unused]] hadal::test::Rig& rig)

inline std::mt19937_64& generator() {
  thread_local std::mt19937_64 g(20240501);
  return g;
}
inline double normal(double sigma = 1.0) {
  return std::normal_distribution<double>(0, sigma)(generator());
}
inline int64_t uniform(int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(generator());
}

// A packed tensor and its storage; every byte 0xFF at first, a NaN in every float format.
struct Array {
  Array(DType dtype, std::initializer_list<int64_t> dims) : view(nullptr, dtype, dims) {
    storage.assign(std::max<int64_t>(1, view.bytes()), 0xFF);
    view.data = storage.data();
  }
  Array(const Array& o) : storage(o.storage), view(o.view) { view.data = storage.data(); }
  Array(Array&& o) noexcept : storage(std::move(o.storage)), view(o.view) {
    view.data = storage.data();
  }
  Array& operator=(const Array&) = delete;

  int64_t size() const { return view.size(); }
  double at(int64_t i) const {
    switch (view.dtype) {
      case DType::kF32:
        return static_cast<const float*>(view.data)[i];
      case DType::kBF16:
        return bf16_to_f32(static_cast<const BF16*>(view.data)[i]);
      case DType::kF16:
        return f16_to_f32(static_cast<const uint16_t*>(view.data)[i]);
      case DType::kI32:
        return static_cast<const int32_t*>(view.data)[i];
      case DType::kF8E4M3:
        return e4m3_to_f32(static_cast<const uint8_t*>(view.data)[i]);
      default:
        ADD_FAILURE() << "no numbers in " << view.describe();
        return 0;
    }
  }
  // Rounds to the dtype. F16 values must be chosen representable.
  void set(int64_t i, double v) {
    switch (view.dtype) {
      case DType::kF32:
        static_cast<float*>(view.data)[i] = static_cast<float>(v);
        break;
      case DType::kBF16:
        static_cast<BF16*>(view.data)[i] = f32_to_bf16(static_cast<float>(v));
        break;
      case DType::kI32:
        static_cast<int32_t*>(view.data)[i] = static_cast<int32_t>(v);
        break;
      case DType::kF16: {
        _Float16 h = static_cast<_Float16>(v);
        std::memcpy(static_cast<uint16_t*>(view.data) + i, &h, 2);
        break;
      }
      default:
        ADD_FAILURE() << "no numbers in " << view.describe();
    }
  }
  template <class F>
  Array& fill(F&& f) {
    for (int64_t i = 0; i < size(); ++i) set(i, f());
    return *this;
  }
  Array& fill_normal(double sigma = 1.0) {
    return fill([&] { return normal(sigma); });
  }
  std::vector<double> doubles() const {
    std::vector<double> v(size());
    for (int64_t i = 0; i < size(); ++i) v[i] = at(i);
    return v;
  }
  bool same_bits(const Array& o) const { return storage == o.storage; }

  std::vector<uint8_t> storage;
  Tensor view;
};

// Half the relative distance of neighbours: the error of one rounding.
inline double unit_roundoff(DType t) { return t == DType::kBF16 ? 0x1p-8 : 0x1p-24; }

// |got - want| <= one rounding of the dtype + `relative` * max(|want|, scale).
inline void expect_close(const Array& got, const std::vector<double>& want, double relative,
                         double scale, const std::string& what) {
  ASSERT_EQ(got.size(), static_cast<int64_t>(want.size())) << what;
  for (int64_t i = 0; i < got.size(); ++i) {
    double bound = 1.001 * unit_roundoff(got.view.dtype) * std::abs(want[i]) +
                   relative * std::max(std::abs(want[i]), scale);
    ASSERT_TRUE(std::abs(got.at(i) - want[i]) <= bound)
        << what << ": element " << i << " is " << got.at(i) << ", expected " << want[i]
        << " within " << bound;
  }
}

inline std::string text(DType t) { return dtype_name(t); }

}  // namespace hadal::test
