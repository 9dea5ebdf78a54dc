// Speed of the matrix products: decode as a share of the read bandwidth measured in the same run,
// prefill as a share of oneDNN's bf16 rate on the same shapes (where oneDNN was found at configure
// time).
//   linear_bench --benchmark_filter=decode      weights of 2 GiB, read once per pass
//   linear_bench --benchmark_filter=prefill
// Figures are those of the best windows or calls, because other work only ever slows one.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <array>
#include <chrono>
#include <memory>
#include <random>
#include <thread>

#include "kernels/cpu/ref_linear.h"
#include "kernels/cpu/tuned_linear.h"
#include "kernels/dispatch/kernels.h"

#if defined(HADAL_BENCH_ONEDNN)
#include <dnnl.hpp>
#endif

namespace hadal {
namespace {

struct Family {
  const char* name;
  bool Device::*needs;
  LinearFn* linear;
  GroupedLinearFn* grouped;
  BatchedLinearFn* batched;
  BatchedLinearFn* transposed;
};

constexpr Family kFamilies[] = {
    {"avx2", &Device::avx2, avx2_linear, avx2_grouped_linear, avx2_batched_linear,
     avx2_batched_linear_transposed},
    {"avx512", &Device::avx512, avx512_linear, avx512_grouped_linear, avx512_batched_linear,
     avx512_batched_linear_transposed},
    {"amx", &Device::amx, amx_linear, amx_grouped_linear, amx_batched_linear,
     amx_batched_linear_transposed},
};

struct Kind {
  const char* name;
  DType dtype, scale;
};
constexpr Kind kFp8{"fp8", DType::kF8E4M3, DType::kF8E8M0};
constexpr Kind kFp8Float{"fp8_f32scale", DType::kF8E4M3, DType::kF32};
constexpr Kind kFp4{"fp4", DType::kI8, DType::kF8E8M0};
constexpr Kind kBf16{"bf16", DType::kBF16, DType::kF32};

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

constexpr int64_t kPoolBytes = int64_t{2} << 30;

// Random bytes for all weights, and the machine that reads them.
class Bench {
 public:
  static Bench& get() {
    static Bench bench;
    return bench;
  }

  ThreadPool threads;
  Kernels kernels;
  Device device = detect_device();
  Context ctx{threads, kernels};
  uint8_t* pool;
  std::vector<uint8_t> e8m0;
  std::vector<float> f32;

  // The i-th weight of this shape in the pool; how many there are.
  Weight weight(const Kind& kind, int64_t n, int64_t k, int64_t i) {
    Weight w;
    bool fp4 = kind.dtype == DType::kI8;
    int64_t columns = fp4 ? k / 2 : k, bytes = n * columns * dtype_size(kind.dtype);
    w.data = Tensor(pool + i * bytes, kind.dtype, {n, columns});
    const void* scales = kind.scale == DType::kF32 ? static_cast<void*>(f32.data()) : e8m0.data();
    if (fp4) w.scale = Tensor(scales, kind.scale, {n, k / 32});
    if (kind.dtype == DType::kF8E4M3)
      w.scale = Tensor(scales, kind.scale, {(n + 127) / 128, (k + 127) / 128});
    return w;
  }
  int64_t count(const Kind& kind, int64_t n, int64_t k) {
    return kPoolBytes / weight(kind, n, k, 0).data.bytes();
  }

  // Reads `bytes` of the pool from `at` on with all threads; returns the seconds it took.
  double read(int64_t at, int64_t bytes) {
    double start = seconds();
    threads.run(bytes, 4096, [&](int64_t b, int64_t e, int) {
      uint64_t sum[8] = {};
      for (int64_t i = at + b; i < at + e; i += 64) {
        __builtin_prefetch(pool + i + 2048);
        const auto* p = reinterpret_cast<const uint64_t*>(pool + i);
        for (int j = 0; j < 8; ++j) sum[j] += p[j];
      }
      benchmark::DoNotOptimize(sum);
    });
    return seconds() - start;
  }

 private:
  Bench() {
    pool = static_cast<uint8_t*>(mmap(nullptr, kPoolBytes + 4096, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::mt19937_64 random(1);
    // Exponents near the middle of each format's range: no NaN, no subnormals.
    for (int64_t i = 0; i < kPoolBytes; i += 8)
      *reinterpret_cast<uint64_t*>(pool + i) =
          (random() & 0x8fbf8fbf8fbf8fbfull) | 0x3000300030003000ull;
    e8m0.resize(64 << 20);
    for (auto& b : e8m0) b = static_cast<uint8_t>(120 + random() % 4);
    f32.assign(1 << 20, 0.7f);
  }
};

Activation activation(std::vector<uint8_t>& bytes, DType t, int64_t m, int64_t k) {
  bytes.resize(m * k * 4 + m * (k / 128 + 1) * 4);
  Activation x;
  auto* scale = reinterpret_cast<float*>(bytes.data() + m * k * 4);
  for (int64_t i = 0; i < m * k; ++i) {
    if (t == DType::kF32) reinterpret_cast<float*>(bytes.data())[i] = 0.01f * (i % 101 - 50);
    if (t == DType::kBF16)
      reinterpret_cast<BF16*>(bytes.data())[i] = f32_to_bf16(0.01f * (i % 101 - 50));
    if (t == DType::kF8E4M3) bytes[i] = static_cast<uint8_t>(i * 37 & 0xbf);
  }
  x.data = Tensor(bytes.data(), t, {m, k});
  if (t == DType::kF8E4M3) {
    std::fill_n(scale, m * ((k + 127) / 128), 0.125f);
    x.scale = Tensor(scale, DType::kF32, {m, (k + 127) / 128});
  }
  return x;
}

// Runs `call(i)` for weights 0, 1, ... of `bytes` each, in windows of 8 MiB or one call that
// alternate with a plain read of as many bytes elsewhere in the pool, so that both see the same
// machine. Reports the rates that the best twentieth of the windows reach.
template <class F>
void measure_decode(benchmark::State& state, double bytes, int64_t count, F&& call) {
  Bench& b = Bench::get();
  int64_t window = std::max<int64_t>(1, static_cast<int64_t>((8 << 20) / bytes)), next = 0;
  double size = window * bytes;
  int64_t read_bytes = static_cast<int64_t>(size) / 4096 * 4096, at = kPoolBytes / 2;
  std::vector<double> kernel, read;
  for (auto _ : state) {
    double start = seconds();
    for (int64_t i = 0; i < window; ++i) call(next++ % count);
    kernel.push_back(size / (seconds() - start) * 1e-9);
    if (at + read_bytes + 4096 > kPoolBytes) at = 0;
    read.push_back(read_bytes / b.read(at, read_bytes) * 1e-9);
    at += read_bytes;
  }
  auto best = [](std::vector<double>& v) {
    std::sort(v.begin(), v.end());
    return v[v.size() * 19 / 20];
  };
  state.counters["GB/s"] = best(kernel);
  state.counters["read_GB/s"] = best(read);
  state.counters["share_%"] = 100 * state.counters["GB/s"] / state.counters["read_GB/s"];
}

void decode(benchmark::State& state, const Family& f, const Kind& kind, DType xt, int64_t m,
            int64_t n, int64_t k) {
  Bench& b = Bench::get();
  std::vector<uint8_t> xb, yb(m * n * 4);
  Activation x = activation(xb, xt, m, k);
  Tensor y(yb.data(), xt == DType::kF32 ? xt : DType::kBF16, {m, n});
  double bytes = static_cast<double>(b.weight(kind, n, k, 0).bytes());
  measure_decode(state, bytes, b.count(kind, n, k),
                 [&](int64_t i) { f.linear(b.ctx, x, b.weight(kind, n, k, i), y); });
}

// One token, six experts at a time out of the pool.
void grouped_decode(benchmark::State& state, const Family& f, const Kind& kind, int64_t n,
                    int64_t k) {
  Bench& b = Bench::get();
  constexpr int64_t kExperts = 6;
  std::vector<uint8_t> xb, yb(kExperts * n * 4);
  Activation x = activation(xb, DType::kF8E4M3, 1, k);
  Tensor y(yb.data(), DType::kBF16, {kExperts, n});
  const int32_t rows[] = {0, 0, 0, 0, 0, 0}, offsets[] = {0, 1, 2, 3, 4, 5, 6};
  double bytes = static_cast<double>(kExperts * b.weight(kind, n, k, 0).bytes());
  measure_decode(state, bytes, b.count(kind, n, k) / kExperts, [&](int64_t i) {
    std::array<Weight, kExperts> experts;
    for (int64_t e = 0; e < kExperts; ++e) experts[e] = b.weight(kind, n, k, i * kExperts + e);
    f.grouped(b.ctx, x, rows, offsets, experts, y);
  });
}

// One token through the heads of W_UK (transposed) or W_UV.
void batched_decode(benchmark::State& state, const Family& f, const Kind& kind, bool transposed,
                    int64_t groups, int64_t n, int64_t k) {
  Bench& b = Bench::get();
  int64_t in = transposed ? n : k, out = transposed ? k : n;
  std::vector<uint8_t> xb, yb(groups * out * 4);
  Tensor x = activation(xb, DType::kBF16, 1, groups * in).data.reshape({1, groups, in});
  Tensor y(yb.data(), DType::kBF16, {1, groups, out});
  double bytes = static_cast<double>(b.weight(kind, groups * n, k, 0).bytes());
  measure_decode(state, bytes, b.count(kind, groups * n, k), [&](int64_t i) {
    Weight all = b.weight(kind, groups * n, k, i);
    std::vector<Weight> w;
    for (int64_t g = 0; g < groups; ++g) w.push_back(all.rows(g * n, (g + 1) * n));
    (transposed ? f.transposed : f.batched)(b.ctx, x, w, y);
  });
}

// oneDNN's y = x W^T in bf16, W in the layout that it prefers.
class OneDnn {
 public:
#if defined(HADAL_BENCH_ONEDNN)
  static constexpr bool kFound = true;
  OneDnn(int64_t m, int64_t n, int64_t k) {
    using Tag = dnnl::memory::format_tag;
    constexpr auto kBf16 = dnnl::memory::data_type::bf16;
    dnnl::memory::desc x({m, k}, kBf16, Tag::ab), w({k, n}, kBf16, Tag::any),
        y({m, n}, kBf16, Tag::ab);
    dnnl::matmul::primitive_desc chosen(dnnl::matmul::desc(x, w, y), cpu_);
    x_ = dnnl::memory(x, cpu_);
    w_ = dnnl::memory(chosen.weights_desc(), cpu_);
    y_ = dnnl::memory(y, cpu_);
    dnnl::memory plain({{k, n}, kBf16, Tag::ba}, cpu_);
    std::fill_n(static_cast<uint16_t*>(x_.get_data_handle()), m * k, uint16_t{0x3c00});
    std::fill_n(static_cast<uint16_t*>(plain.get_data_handle()), n * k, uint16_t{0x3c00});
    dnnl::reorder(plain, w_).execute(stream_, plain, w_);
    product_ = dnnl::matmul(chosen);
  }
  void run() {
    product_.execute(stream_, {{DNNL_ARG_SRC, x_}, {DNNL_ARG_WEIGHTS, w_}, {DNNL_ARG_DST, y_}});
    stream_.wait();
  }

 private:
  dnnl::engine cpu_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{cpu_};
  dnnl::memory x_, w_, y_;
  dnnl::matmul product_;
#else
  static constexpr bool kFound = false;
  OneDnn(int64_t, int64_t, int64_t) {}
  void run() {}
#endif
};

// The best of `count` calls, after a pause in which the threads of others stop spinning.
template <class F>
double best_call(int count, F&& call) {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  double best = 1e9;
  for (int i = 0; i < count; ++i) {
    double start = seconds();
    call();
    best = std::min(best, seconds() - start);
  }
  return best;
}

void prefill(benchmark::State& state, const Family& f, const Kind& kind, DType xt, int64_t m,
             int64_t n, int64_t k) {
  Bench& b = Bench::get();
  std::vector<uint8_t> xb, yb(m * n * 4);
  Activation x = activation(xb, xt, m, k);
  Tensor y(yb.data(), xt == DType::kF32 ? xt : DType::kBF16, {m, n});
  OneDnn other(m, n, k);
  int64_t i = 0, count = b.count(kind, n, k);
  double ours = 1e9, theirs = 1e9;
  for (auto _ : state) {
    ours = std::min(
        ours, best_call(10, [&] { f.linear(b.ctx, x, b.weight(kind, n, k, i++ % count), y); }));
    if (OneDnn::kFound) theirs = std::min(theirs, best_call(10, [&] { other.run(); }));
  }
  state.counters["GFLOP/s"] = 2e-9 * m * n * k / ours;
  if (OneDnn::kFound) {
    state.counters["oneDNN"] = 2e-9 * m * n * k / theirs;
    state.counters["share_%"] = 100 * theirs / ours;
  }
}

// Tokens spread over experts as evenly as routing ever does.
void grouped_prefill(benchmark::State& state, const Family& f, const Kind& kind, int64_t experts,
                     int64_t rows, int64_t n, int64_t k) {
  Bench& b = Bench::get();
  int64_t m = experts * rows;
  std::vector<uint8_t> xb, yb(m * n * 4);
  Activation x = activation(xb, DType::kF8E4M3, m, k);
  Tensor y(yb.data(), DType::kBF16, {m, n});
  std::vector<int32_t> offsets;
  std::vector<Weight> w;
  for (int64_t e = 0; e <= experts; ++e) offsets.push_back(static_cast<int32_t>(e * rows));
  for (int64_t e = 0; e < experts; ++e) w.push_back(b.weight(kind, n, k, e));
  double best = 1e9;
  for (auto _ : state) {
    double start = seconds();
    f.grouped(b.ctx, x, nullptr, offsets.data(), w, y);
    best = std::min(best, seconds() - start);
  }
  state.counters["GFLOP/s"] = 2e-9 * m * n * k / best;
  state.counters["GB/s"] = 1e-9 * experts * w[0].bytes() / best;
}

std::string type_name(DType t) {
  return t == DType::kF8E4M3 ? "x8" : t == DType::kBF16 ? "x16" : "x32";
}

void add_decode(const Family& f) {
  std::string prefix = std::string("decode/") + f.name + "/";
  auto add = [&](const Kind& kind, DType xt, int64_t m, int64_t n, int64_t k) {
    std::string name = prefix + kind.name + "/" + type_name(xt) + "/M" + std::to_string(m) + "/" +
                       std::to_string(n) + "x" + std::to_string(k);
    benchmark::RegisterBenchmark(name.c_str(),
                                 [=, &f](benchmark::State& s) { decode(s, f, kind, xt, m, n, k); })
        ->Iterations(300)
        ->Unit(benchmark::kMillisecond);
  };
  for (int64_t m : {1, 2, 4, 8, 16}) {
    add(kFp8, DType::kF8E4M3, m, 2048, 7168);
    add(kFp4, DType::kF8E4M3, m, 2048, 4096);
  }
  add(kFp8Float, DType::kF8E4M3, 1, 7168, 2048);
  add(kFp8, DType::kF8E4M3, 1, 1536, 512);
  add(kFp8, DType::kF32, 1, 2048, 7168);
  add(kFp4, DType::kF32, 1, 2048, 4096);
  add(kBf16, DType::kBF16, 1, 4096, 4096);
  add(kBf16, DType::kF32, 1, 4096, 4096);
  for (const Kind* kind : {&kFp4, &kFp8})
    benchmark::RegisterBenchmark(
        (prefix + kind->name + "/grouped").c_str(),
        [&f, kind](benchmark::State& s) { grouped_decode(s, f, *kind, 2048, 4096); })
        ->Iterations(300)
        ->Unit(benchmark::kMillisecond);
  for (bool transposed : {false, true})
    benchmark::RegisterBenchmark((prefix + (transposed ? "fp8/w_uk" : "fp8/w_uv")).c_str(),
                                 [&f, transposed](benchmark::State& s) {
                                   batched_decode(s, f, kFp8Float, transposed, 128, 128, 512);
                                 })
        ->Iterations(300)
        ->Unit(benchmark::kMillisecond);
}

void add_prefill(const Family& f) {
  std::string prefix = std::string("prefill/") + f.name + "/";
  auto add = [&](const Kind& kind, DType xt, int64_t m, int64_t n, int64_t k) {
    std::string name = prefix + kind.name + "/" + type_name(xt) + "/" + std::to_string(m) + "x" +
                       std::to_string(n) + "x" + std::to_string(k);
    benchmark::RegisterBenchmark(name.c_str(),
                                 [=, &f](benchmark::State& s) { prefill(s, f, kind, xt, m, n, k); })
        ->Iterations(5)
        ->Unit(benchmark::kMillisecond);
  };
  const int64_t shapes[][2] = {{4096, 4096}, {2048, 4096}, {7168, 2048}, {2048, 2048}};
  for (auto [n, k] : shapes)
    for (const Kind* kind : {&kFp8, &kFp8Float, &kFp4, &kBf16})
      add(*kind, kind == &kBf16 ? DType::kBF16 : DType::kF8E4M3, 512, n, k);
  add(kFp8, DType::kBF16, 512, 4096, 4096);
  add(kFp8, DType::kF32, 512, 2048, 4096);
  add(kBf16, DType::kF32, 512, 2048, 4096);
  for (int64_t rows : {4, 12, 32})
    benchmark::RegisterBenchmark(
        (prefix + "fp4/grouped/rows" + std::to_string(rows)).c_str(),
        [&f, rows](benchmark::State& s) { grouped_prefill(s, f, kFp4, 64, rows, 2048, 4096); })
        ->Iterations(10)
        ->Unit(benchmark::kMillisecond);
}

bool register_all() {
  Device device = detect_device();
  for (const Family& f : kFamilies) {
    if (f.needs && !(device.*f.needs)) continue;
    add_decode(f);
    add_prefill(f);
  }
  return true;
}

const bool registered = register_all();

}  // namespace
}  // namespace hadal
