// Speed of the ops around the matrix products at the released shapes, per candidate: attention,
// indexer, mHC, and the row ops of a decode step. Counters: GFLOP/s where arithmetic decides, GB/s
// where reading does.
#include <benchmark/benchmark.h>

#include <numeric>
#include <random>
#include <vector>

#include "kernels/cpu/amx_attention.h"
#include "kernels/cpu/amx_index_score.h"
#include "kernels/cpu/avx2_attention.h"
#include "kernels/cpu/avx2_hyper.h"
#include "kernels/cpu/avx2_index_score.h"
#include "kernels/cpu/avx512_attention.h"
#include "kernels/cpu/avx512_hyper.h"
#include "kernels/cpu/avx512_index_score.h"
#include "kernels/cpu/ref_attn_mla.h"
#include "kernels/cpu/ref_attn_sparse.h"
#include "kernels/cpu/ref_hyper.h"
#include "kernels/cpu/ref_index_score.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/dispatch/kernels.h"
#include "kernels/moe_combine.h"
#include "kernels/norm.h"
#include "kernels/quant.h"
#include "kernels/topk.h"

namespace hadal {
namespace {

struct Store {
  Store(DType t, std::initializer_list<int64_t> dims, float sigma = 1) : view(nullptr, t, dims) {
    bytes.resize(view.bytes());
    view.data = bytes.data();
    std::mt19937 g(7);
    std::normal_distribution<float> normal(0, sigma);
    for (int64_t i = 0; i < view.size(); ++i) {
      if (t == DType::kF32) static_cast<float*>(view.data)[i] = normal(g);
      if (t == DType::kBF16) static_cast<BF16*>(view.data)[i] = f32_to_bf16(normal(g));
    }
  }
  std::vector<uint8_t> bytes;
  Tensor view;
};

// `rows` tokens of one sequence that ends at position `last`.
struct Rows {
  Rows(int32_t rows, int32_t last) : positions(rows), sequence(rows, 0), first{0, rows} {
    std::iota(positions.begin(), positions.end(), last + 1 - rows);
    start = {last + 1 - rows};
    slot = {0};
    batch = {rows,         1,          last + 1, positions.data(), sequence.data(), first.data(),
             start.data(), slot.data()};
  }
  std::vector<int32_t> positions, sequence, first, start, slot;
  Batch batch;
};

struct Pool {
  Pool(int64_t entries, int64_t d, DType t)
      : data(t, {(entries + 63) / 64, 64, d}), pages(data.view.shape[0]) {
    std::iota(pages.begin(), pages.end(), 0);
    table = {pages.data(), static_cast<int64_t>(pages.size()), 64};
  }
  Store data;
  std::vector<int32_t> pages;
  PageTable table;
};

// Every `stride`-th entry, `k` of them, for every row.
Store selection(int64_t rows, int64_t k, int64_t stride) {
  Store s(DType::kI32, {rows, k});
  for (int64_t i = 0; i < rows * k; ++i)
    static_cast<int32_t*>(s.view.data)[i] = static_cast<int32_t>(i % k * stride);
  return s;
}

const Device kDevice = detect_device();
const Kernels kernels = choose_kernels(kDevice);

void set_flops(benchmark::State& state, double flops) {
  state.counters["GFLOP/s"] =
      benchmark::Counter(flops * 1e-9 * state.iterations(), benchmark::Counter::kIsRate);
}
void set_bytes(benchmark::State& state, double bytes) {
  state.counters["GB/s"] =
      benchmark::Counter(bytes * 1e-9 * state.iterations(), benchmark::Counter::kIsRate);
}

// V4-Flash ratio-4 layer: 64 heads of 512, window 128 and 512 selected entries. Args: rows, dtype.
void BM_Sparse(benchmark::State& state, SparseAttentionFn* launch) {
  int32_t rows = static_cast<int32_t>(state.range(0));
  DType t = state.range(1) ? DType::kBF16 : DType::kF32;
  ThreadPool threads(static_cast<int>(state.range(2)));
  Context ctx{threads, kernels};
  Rows r(rows, 20000);
  Pool pool(5001, 512, t);
  Store q(t, {rows, 64, 512}, 3), kv(t, {rows, 512}), ring(t, {1, 256, 512}),
      out(t, {rows, 64, 512});
  Store sink(DType::kF32, {64}), selected = selection(rows, 512, 9);
  SparseAttention a{q.view, kv.view,       ring.view, 128,     pool.data.view, pool.table,
                    4,      selected.view, sink.view, 0.0442f, out.view};
  for (auto _ : state) launch(ctx, r.batch, a);
  set_flops(state, 4.0 * rows * 64 * 512 * 640);
}

// DeepSeek-V3.2: 128 heads, 512 + 64, 2048 selected tokens.
void BM_Mla(benchmark::State& state, MlaAttentionFn* launch) {
  int32_t rows = static_cast<int32_t>(state.range(0));
  DType t = state.range(1) ? DType::kBF16 : DType::kF32;
  ThreadPool threads(static_cast<int>(state.range(2)));
  Context ctx{threads, kernels};
  Rows r(rows, 20000);
  Pool pool(20001, 576, t);
  Store q(t, {rows, 128, 576}, 1), out(t, {rows, 128, 512}), selected = selection(rows, 2048, 9);
  MlaAttention a{q.view, pool.data.view, pool.table, selected.view, 0.135f, out.view};
  for (auto _ : state) launch(ctx, r.batch, a);
  set_flops(state, 2.0 * rows * 128 * (576 + 512) * 2048);
}

// bf16 only.
void amx_args(benchmark::internal::Benchmark* b) {
  if (!kDevice.amx) return;
  b->Args({1, 1, 1})->Args({16, 1, 1})->Unit(benchmark::kMicrosecond);
}
void attention_args(benchmark::internal::Benchmark* b) {
  for (int64_t bf16 : {1, 0})
    for (int64_t rows : {1, 16}) b->Args({rows, bf16, 1});
  b->Unit(benchmark::kMicrosecond);
}
BENCHMARK_CAPTURE(BM_Sparse, amx, amx_sparse_attention)->Apply(amx_args);
BENCHMARK_CAPTURE(BM_Mla, amx, amx_mla_attention)->Apply(amx_args);
BENCHMARK_CAPTURE(BM_Sparse, avx512, avx512_sparse_attention)->Apply(attention_args);
BENCHMARK_CAPTURE(BM_Mla, avx512, avx512_mla_attention)->Apply(attention_args);
BENCHMARK_CAPTURE(BM_Sparse, avx2, avx2_sparse_attention)->Apply(attention_args);
BENCHMARK_CAPTURE(BM_Mla, avx2, avx2_mla_attention)->Apply(attention_args);
BENCHMARK_CAPTURE(BM_Sparse, ref, ref_sparse_attention)->Args({1, 1, 1});

// 64 heads of 128 against 4096 keys. Args: rows, release rounding.
void BM_IndexScore(benchmark::State& state, IndexScoreFn* launch) {
  int32_t rows = static_cast<int32_t>(state.range(0));
  ThreadPool threads(1);
  Context ctx{threads, kernels};
  Rows r(rows, 16383);
  Pool pool(4096, 128, DType::kBF16);
  Store q(DType::kBF16, {rows, 64, 128}), w(DType::kF32, {rows, 64}),
      scores(DType::kF32, {rows, 4096});
  IndexScore s{q.view, w.view, pool.data.view, pool.table, 4, state.range(1) != 0,
               0,      rows,   scores.view};
  for (auto _ : state) launch(ctx, r.batch, s);
  set_flops(state, 2.0 * rows * 64 * 128 * 4096);
}
BENCHMARK_CAPTURE(BM_IndexScore, amx, amx_index_score)->Apply([](auto* b) {
  if (kDevice.amx) b->ArgsProduct({{1, 16}, {0, 1}});
});
BENCHMARK_CAPTURE(BM_IndexScore, avx512, avx512_index_score)->ArgsProduct({{1, 16}, {0, 1}});
BENCHMARK_CAPTURE(BM_IndexScore, avx2, avx2_index_score)->ArgsProduct({{1, 16}, {0, 1}});
BENCHMARK_CAPTURE(BM_IndexScore, ref, ref_index_score)->Args({1, 0});

void BM_TopK(benchmark::State& state) {
  int64_t n = state.range(0), k = state.range(1);
  ThreadPool threads(1);
  Context ctx{threads, kernels};
  Rows r(1, static_cast<int32_t>(n - 1));
  Store scores(DType::kF32, {1, n}), out(DType::kI32, {1, k});
  for (auto _ : state) topk(ctx, r.batch, 0, scores.view, 1, out.view);
  set_bytes(state, 4.0 * n);
}
BENCHMARK(BM_TopK)->Args({4096, 512})->Args({131072, 2048})->Unit(benchmark::kMicrosecond);

// Args: rows, hidden.
void BM_HyperPre(benchmark::State& state, HyperPreFn* launch) {
  int64_t rows = state.range(0), c = state.range(1);
  ThreadPool threads(1);
  Context ctx{threads, kernels};
  Store x(DType::kBF16, {rows, 4, c}), fn(DType::kF32, {24, 4 * c}, 0.01f), base(DType::kF32, {24}),
      scale(DType::kF32, {3}), y(DType::kBF16, {rows, c}), post(DType::kF32, {rows, 4}),
      comb(DType::kF32, {rows, 4, 4});
  for (auto _ : state)
    launch(ctx, x.view, {fn.view, base.view, scale.view}, {}, y.view, post.view, comb.view);
  set_bytes(state, 4.0 * 24 * 4 * c);
  set_flops(state, 2.0 * rows * 24 * 4 * c);
}
BENCHMARK_CAPTURE(BM_HyperPre, avx512, avx512_hyper_pre)
    ->ArgsProduct({{1, 16}, {256, 4096}})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_HyperPre, avx2, avx2_hyper_pre)
    ->ArgsProduct({{1, 16}, {256, 4096}})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_HyperPre, ref, ref_hyper_pre)->Args({1, 4096})->Unit(benchmark::kMicrosecond);

// The row ops of one decoded token. Arg: width.
struct RowBench {
  explicit RowBench(int64_t c)
      : x(DType::kBF16, {1, c}),
        y(DType::kBF16, {1, c}),
        z(DType::kBF16, {1, c}),
        w(DType::kBF16, {c}),
        codes(DType::kF8E4M3, {1, c}),
        scales(DType::kF32, {1, (c + 127) / 128}),
        streams(DType::kBF16, {1, 4, c}),
        post(DType::kF32, {1, 4}),
        comb(DType::kF32, {1, 4, 4}, 0.3f) {}
  ThreadPool threads{1};
  Context ctx{threads, kernels};
  Store x, y, z, w, codes, scales, streams, post, comb;
};
void BM_RmsNorm(benchmark::State& state) {
  RowBench b(state.range(0));
  for (auto _ : state) rms_norm(b.ctx, b.x.view, b.w.view, 1e-6f, b.y.view);
}
void BM_AddRmsNorm(benchmark::State& state) {
  RowBench b(state.range(0));
  for (auto& v : b.z.bytes) v = 0;
  for (auto _ : state) add_rms_norm(b.ctx, b.x.view, b.z.view, b.w.view, 1e-6f, b.y.view);
}
void BM_QuantizeFp8(benchmark::State& state) {
  RowBench b(state.range(0));
  for (auto _ : state) quantize_fp8(b.ctx, b.x.view, true, {b.codes.view, b.scales.view});
}
void BM_QdqFp8(benchmark::State& state) {
  RowBench b(state.range(0));
  for (auto _ : state) qdq_fp8(b.ctx, b.x.view, 64);
}
void BM_QdqFp4(benchmark::State& state) {
  RowBench b(state.range(0));
  for (auto _ : state) qdq_fp4(b.ctx, b.x.view);
}
void BM_Hadamard64x128(benchmark::State& state) {
  RowBench b(64 * 128);
  for (auto _ : state) hadamard(b.ctx, b.x.view.reshape({64, 128}));
}
void BM_SwiGlu(benchmark::State& state) {
  RowBench b(state.range(0));
  for (auto _ : state) swiglu(b.ctx, b.x.view, b.y.view, 10, nullptr, nullptr, nullptr, b.z.view);
}
void BM_HyperPost(benchmark::State& state) {
  RowBench b(state.range(0));
  for (auto _ : state) hyper_post(b.ctx, b.x.view, b.post.view, b.comb.view, b.streams.view);
}
BENCHMARK(BM_RmsNorm)->Arg(256)->Arg(4096)->Arg(7168);
BENCHMARK(BM_AddRmsNorm)->Arg(256)->Arg(7168);
BENCHMARK(BM_QuantizeFp8)->Arg(256)->Arg(4096)->Arg(7168);
BENCHMARK(BM_QdqFp8)->Arg(448);
BENCHMARK(BM_QdqFp4)->Arg(8192);
BENCHMARK(BM_Hadamard64x128);
BENCHMARK(BM_SwiGlu)->Arg(256)->Arg(2048)->Arg(18432);
BENCHMARK(BM_HyperPost)->Arg(256)->Arg(4096);

}  // namespace
}  // namespace hadal
