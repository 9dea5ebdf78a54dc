// What the tests of the tuned matrix products share: weights and activations of every format, and
// comparison with double-precision sums over weight_value(), the definition of every format.
#pragma once

#include "gpu/reference.h"
#include "kernels/linear.h"

namespace hadal::reference {

// The padding of rows: multiples of 16 bytes, which the tuned products ask for, or anything.
enum class Rows { kWhole, kOdd };

inline int64_t padding(DType t, Rows rows) { return rows == Rows::kOdd ? 3 : 16 / dtype_size(t); }

// Random codes without NaN, random scales. An FP8 weight that begins at row0 of the scaled matrix.
inline Weight random_weight(Arena& arena, DType type, int64_t n, int64_t k, DType scale_type,
                            int64_t row0 = 0, Rows rows = Rows::kWhole) {
  Weight w;
  auto random = [&] { return static_cast<uint8_t>(arena.random()()); };
  if (type == DType::kF32 || type == DType::kBF16) {
    w.data = arena.normal(type, {n, k}, padding(type, rows));
    return w;
  }
  if (type == DType::kF16) {
    w.data = arena.poison(type, {n, k}, padding(type, rows));
    Arena::each(w.data, [&](int64_t i, int64_t j, int64_t) {
      *on_host(w.data).at<uint16_t>(i, j) =
          static_cast<uint16_t>(arena.random()() & 0xbfff);  // up to 2
    });
    return w;
  }
  bool fp4 = type == DType::kI8;
  w.data = arena.poison(type, {n, fp4 ? k / 2 : k}, padding(type, rows));
  Arena::each(w.data, [&](int64_t i, int64_t j, int64_t) {
    uint8_t code = random();
    *on_host(w.data).at<uint8_t>(i, j) = !fp4 && (code & 0x7f) == 0x7f ? 0 : code;
  });
  if (!fp4) w.row0 = row0;
  int64_t scale_rows = fp4 ? n : (row0 + n + 127) / 128;
  w.scale = arena.poison(scale_type, {scale_rows, fp4 ? k / 32 : (k + 127) / 128}, 1);
  Arena::each(w.scale, [&](int64_t i, int64_t j, int64_t) {
    if (scale_type == DType::kF32)
      set(w.scale, 0.01 * (1 + random()), i, j);
    else
      *on_host(w.scale).at<uint8_t>(i, j) = static_cast<uint8_t>(120 + random() % 12);
  });
  return w;
}

// Row i is i + 1 times as large as random numbers are.
inline Activation random_activation(Arena& arena, DType type, int64_t m, int64_t k,
                                    Rows rows = Rows::kWhole) {
  Activation x;
  if (type != DType::kF8E4M3) {
    x.data = arena.normal(type, {m, k}, padding(type, rows), [](int64_t i) { return i + 1.0; });
    return x;
  }
  x.data = arena.poison(type, {m, k}, padding(type, rows));
  Arena::each(x.data, [&](int64_t i, int64_t j, int64_t) {
    auto code = static_cast<uint8_t>(arena.random()());
    *on_host(x.data).at<uint8_t>(i, j) = (code & 0x7f) == 0x7f ? 0 : code;
  });
  x.scale = arena.normal(DType::kF32, {m, (k + 127) / 128}, 2, [](int64_t i) { return i + 1.0; });
  return x;
}

inline double value(const Activation& x, int64_t m, int64_t k) {
  return get(x.data, m, k) * (x.scale.empty() ? 1 : get(x.scale, m, k / 128));
}

// A sum of products, and of their magnitudes, which bound the error of any order in fp32.
struct Dot {
  double sum = 0, size = 0;
  void add(double a, double b) {
    sum += a * b;
    size += std::fabs(a * b);
  }
};
inline constexpr Dot kUnwritten{0, -1};

inline Dot dot(const Activation& x, int64_t m, const Weight& weight, int64_t n) {
  Dot d;
  Weight w = on_host(weight);
  for (int64_t k = 0; k < w.k(); ++k) d.add(value(x, m, k), weight_value(w, n, k));
  return d;
}

inline std::vector<Dot> product(const Activation& x, const Weight& w) {
  std::vector<Dot> all;
  for (int64_t i = 0; i < x.data.shape[0]; ++i)
    for (int64_t j = 0; j < w.n(); ++j) all.push_back(dot(x, i, w, j));
  return all;
}

// `slack`: the error of the sum, as a part of the sum of magnitudes.
inline void expect_dots(const Tensor& y, const std::vector<Dot>& want, const std::string& what,
                        double slack = 1e-6) {
  int64_t n = 0, wrong = 0;
  Arena::each(y, [&](int64_t i, int64_t j, int64_t k) {
    Dot d = want[n++];
    double got = get(y, i, j, k);
    double allowed = slack * d.size + rounding(y.dtype, 0) * std::fabs(d.sum);
    if (d.size < 0 ? std::isnan(got) : std::fabs(got - d.sum) <= allowed) return;
    if (++wrong <= 4)
      ADD_FAILURE() << what << " [" << i << ", " << j << ", " << k << "] is " << got << ", not "
                    << d.sum;
  });
  EXPECT_EQ(wrong, 0) << what;
}

struct Format {
  DType x, w, scale;
};

inline std::string name(const Format& f) {
  return std::string(dtype_name(f.x)) + " x " + dtype_name(f.w) + "/" + dtype_name(f.scale);
}

// `count` weights of [n, k] cut from one, as experts or heads are, `apart` rows from each other.
inline std::vector<Weight> cut(const Weight& w, int64_t count, int64_t n, int64_t apart) {
  std::vector<Weight> out;
  for (int64_t g = 0; g < count; ++g) out.push_back(w.rows(g * apart, g * apart + n));
  return out;
}

// A grouped product: rows [ends[e], ends[e + 1]) are expert e's, taken from any rows of x where
// `gathered`. launch(machine, x, rows, offsets, experts, y).
template <class Launch>
void check_experts(const Format& f, int64_t n, int64_t k, const std::vector<int>& ends,
                   bool gathered, const std::vector<Machine>& on_machines, Launch&& launch) {
  Arena arena;
  int64_t experts = static_cast<int64_t>(ends.size()) - 1, m = ends.back();
  Activation x = random_activation(arena, f.x, m + 5, k);
  // Experts of FP8 are whole scale blocks apart in released files; here they need not be.
  auto w = cut(random_weight(arena, f.w, experts * n, k, f.scale), experts, n, n);
  Tensor offsets = arena.poison(DType::kI32, {experts + 1});
  Tensor rows = arena.integers(DType::kI32, {m}, m + 5);
  for (int64_t e = 0; e <= experts; ++e) set(offsets, ends[e], e);
  std::vector<Dot> want((m + 3) * n, kUnwritten);
  for (int64_t e = 0; e < experts; ++e)
    for (int64_t i = ends[e]; i < ends[e + 1]; ++i)
      for (int64_t j = 0; j < n; ++j)
        want[i * n + j] = dot(x, gathered ? static_cast<int64_t>(get(rows, i)) : i, w[e], j);
  for (auto machine : on_machines) {
    Tensor y = arena.poison(DType::kBF16, {m + 3, n}, 1);
    launch(machine, x, gathered ? rows.at<int32_t>() : nullptr, offsets.at<int32_t>(),
           std::span<const Weight>(w), y);
    expect_dots(y, want, name(f) + " " + describe(machine));
  }
  EXPECT_TRUE(arena.padding_untouched());
}

}  // namespace hadal::reference
