// What the tests of the portable kernels share: tensors whose unwritten numbers are NaN, the hard
// inputs that hide no fault, and comparison with double-precision results.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "gpu/target.h"

namespace hadal::reference {

inline double get(const Tensor& device, int64_t i, int64_t j = 0, int64_t k = 0) {
  const Tensor& t = on_host(device);
  switch (t.dtype) {
    case DType::kF32:
      return *t.at<float>(i, j, k);
    case DType::kBF16:
      return bf16_to_f32(*t.at<BF16>(i, j, k));
    case DType::kF16:
      return f16_to_f32(*t.at<uint16_t>(i, j, k));
    case DType::kI32:
      return *t.at<int32_t>(i, j, k);
    case DType::kF8E4M3:
      return e4m3_to_f32(*t.at<uint8_t>(i, j, k));
    case DType::kI64:
      return static_cast<double>(*t.at<int64_t>(i, j, k));
    default:
      return *t.at<uint8_t>(i, j, k);
  }
}

inline void set(const Tensor& device, double v, int64_t i, int64_t j = 0, int64_t k = 0) {
  const Tensor& t = on_host(device);
  switch (t.dtype) {
    case DType::kF32:
      *t.at<float>(i, j, k) = static_cast<float>(v);
      break;
    case DType::kBF16:
      *t.at<BF16>(i, j, k) = f32_to_bf16(static_cast<float>(v));
      break;
    case DType::kI32:
      *t.at<int32_t>(i, j, k) = static_cast<int32_t>(v);
      break;
    case DType::kI64:
      *t.at<int64_t>(i, j, k) = static_cast<int64_t>(v);
      break;
    case DType::kF8E4M3:
      *t.at<uint8_t>(i, j, k) = f32_to_e4m3(static_cast<float>(v));
      break;
    default:
      ADD_FAILURE() << "no writer for " << t.describe();
  }
}

// Owns tensors of up to rank 3. Every byte starts as 0xFF: NaN, or -1.
class Arena {
 public:
  explicit Arena(uint32_t seed = 1) : random_(seed) {}

  // With `pad` unused elements after each innermost row.
  Tensor poison(DType t, std::initializer_list<int64_t> dims, int64_t pad = 0) {
    std::vector<int64_t> d(dims);
    d.back() += pad;
    int64_t n = 1;
    for (int64_t x : d) n *= x;
    auto bytes =
        std::make_unique<Vector<uint8_t>>(std::max<int64_t>(1, n) * dtype_size(t), uint8_t{0xff});
    Tensor out(on_device(bytes->data()), t, dims);
    for (int i = out.rank - 2, step = static_cast<int>(d.back()); i >= 0; --i) {
      out.stride[i] = step;
      step *= static_cast<int>(d[i]);
    }
    owned_.push_back({std::move(bytes), out, pad});
    return out;
  }

  // Normal numbers; row i (of the first dimension) times scale(i).
  Tensor normal(DType t, std::initializer_list<int64_t> dims, int64_t pad = 0,
                std::function<double(int64_t)> scale = {}) {
    Tensor out = poison(t, dims, pad);
    std::normal_distribution<double> draw;
    each(out, [&](int64_t i, int64_t j, int64_t k) {
      set(out, draw(random_) * (scale ? scale(i) : 1.0), i, j, k);
    });
    return out;
  }

  Tensor integers(DType t, std::initializer_list<int64_t> dims, int64_t below) {
    Tensor out = poison(t, dims);
    each(out, [&](int64_t i, int64_t j, int64_t k) {
      set(out, static_cast<double>(random_() % static_cast<uint64_t>(below)), i, j, k);
    });
    return out;
  }

  // A tensor of the same shape and strides with the same bytes, padding included.
  Tensor copy(const Tensor& t) {
    for (auto& o : owned_) {
      if (o.view.data != t.data) continue;
      auto bytes = std::make_unique<Vector<uint8_t>>(*o.bytes);
      Tensor out = t;
      out.data = on_device(bytes->data());
      owned_.push_back({std::move(bytes), out, o.pad});
      return out;
    }
    ADD_FAILURE() << "not of this arena";
    return {};
  }

  // Did anything write between the rows?
  bool padding_untouched() const {
    for (auto& o : owned_) {
      int64_t columns = o.view.shape[o.view.rank - 1], pitch = columns + o.pad;
      int64_t size = dtype_size(o.view.dtype);
      for (size_t i = 0; o.pad && i < o.bytes->size(); ++i)
        if (static_cast<int64_t>(i) / size % pitch >= columns && (*o.bytes)[i] != 0xff)
          return false;
    }
    return true;
  }

  template <class F>
  static void each(const Tensor& t, F&& f) {
    int64_t d[3] = {1, 1, 1};
    for (int i = 0; i < t.rank; ++i) d[i] = t.shape[i];
    for (int64_t i = 0; i < d[0]; ++i)
      for (int64_t j = 0; j < d[1]; ++j)
        for (int64_t k = 0; k < d[2]; ++k) f(i, j, k);
  }

  std::mt19937_64& random() { return random_; }

 private:
  struct Owned {
    std::unique_ptr<Vector<uint8_t>> bytes;
    Tensor view;
    int64_t pad;
  };
  std::vector<Owned> owned_;
  std::mt19937_64 random_;
};

// As many numbers as `got` has, in row-major order.
using Doubles = std::vector<double>;

// |got - want| <= abs + rel |want| for every number; NaN only where NaN is wanted.
inline void expect_close(const Tensor& got, const Doubles& want, double rel, double abs,
                         const std::string& what) {
  ASSERT_EQ(got.size(), static_cast<int64_t>(want.size())) << what;
  int64_t n = 0, wrong = 0;
  Arena::each(got, [&](int64_t i, int64_t j, int64_t k) {
    double w = want[n++], g = get(got, i, j, k);
    bool good =
        std::isnan(w) ? std::isnan(g) : g == w || std::fabs(g - w) <= abs + rel * std::fabs(w);
    if (good || ++wrong > 4) return;
    ADD_FAILURE() << what << " [" << i << ", " << j << ", " << k << "] is " << g << ", not " << w;
  });
  EXPECT_EQ(wrong, 0) << what;
}

// One rounding to the dtype, plus `slack` of relative error before it.
inline double rounding(DType t, double slack = 2e-6) {
  return (t == DType::kBF16 ? 0x1p-8 : 0x1p-23) + slack;
}

inline Doubles numbers(const Tensor& t) {
  Doubles out;
  Arena::each(t, [&](int64_t i, int64_t j, int64_t k) { out.push_back(get(t, i, j, k)); });
  return out;
}

inline void expect_same(const Tensor& got, const Tensor& want, const std::string& what) {
  expect_close(got, numbers(want), 0, 0, what);
}

// An op's workspace of NaNs, with a few bytes behind it that must stay as they are.
struct Workspace {
  explicit Workspace(int64_t size)
      : bytes(size),
        whole(arena.poison(DType::kI8, {bytes + 256})),
        tensor(whole.slice(0, 0, bytes)) {}

  bool end_untouched() const {
    for (int64_t i = bytes; i < bytes + 256; ++i)
      if (get(whole, i) != 0xff) return false;
    return true;
  }

  Arena arena;
  int64_t bytes;
  Tensor whole, tensor;
};

}  // namespace hadal::reference
