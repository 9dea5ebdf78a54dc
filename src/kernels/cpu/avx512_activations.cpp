// Brings rows of x into lane order: bf16 and FP8 through bf16 words, f32 by a gather.
#include "kernels/cpu/avx512_activations.h"

namespace hadal {
namespace {

// The column that word i of vector j holds.
constexpr int word_column(Order order, int j, int i) {
  if (order == Order::kNatural) return 32 * j + i;
  if (order == Order::kFp4) return 4 * i + j;
  return 64 * (j / 2) + 16 * (i / 8) + 8 * (j % 2) + i % 8;
}

// Of a chunk as 8 x 16 floats: the column of each, and where each column lies, alone or in pairs.
struct FloatOrder {
  alignas(64) int32_t column[kChunk];
  alignas(64) int32_t position[kChunk];
  alignas(64) int32_t pair_position[kChunk];
};

constexpr FloatOrder float_order(Order order, bool words) {
  FloatOrder out{};
  for (int i = 0; i < kChunk; ++i) {
    out.column[i] = words ? word_column(order, i / 32, i % 16 * 2 + i / 16 % 2) : i;
    out.position[out.column[i]] = i;
    int j = i / 32, word = i % 32, lane = word / 8, high = word % 8 / 4;
    out.pair_position[word_column(order, j, word)] = 16 * (2 * j + high) + 4 * lane + word % 4;
  }
  return out;
}

constexpr FloatOrder kPlainFloats = float_order(Order::kNatural, false);
constexpr FloatOrder kBf16Floats = float_order(Order::kNatural, true);
constexpr FloatOrder kFp8Floats = float_order(Order::kFp8, true);
constexpr FloatOrder kFp4Floats = float_order(Order::kFp4, true);

const FloatOrder& float_order_of(DType weight) {
  switch (weight) {
    case DType::kBF16:
      return kBf16Floats;
    case DType::kF8E4M3:
      return kFp8Floats;
    case DType::kI8:
      return kFp4Floats;
    default:
      return kPlainFloats;
  }
}

HADAL_TARGET_BEGIN(HADAL_TARGET_AVX512)

// Words in natural order to words in `order`.
Words reorder(const Words& w, Order order) {
  if (order == Order::kFp8) {
    const __m512i even = _mm512_set_epi64(13, 12, 9, 8, 5, 4, 1, 0);
    const __m512i odd = _mm512_set_epi64(15, 14, 11, 10, 7, 6, 3, 2);
    return {_mm512_permutex2var_epi64(w.v0, even, w.v1), _mm512_permutex2var_epi64(w.v0, odd, w.v1),
            _mm512_permutex2var_epi64(w.v2, even, w.v3),
            _mm512_permutex2var_epi64(w.v2, odd, w.v3)};
  }
  if (order == Order::kFp4) {
    // Two rounds of "even words of both, odd words of both": stride 2, then stride 4.
    const __m512i ramp =
        _mm512_set_epi16(31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13,
                         12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i even = _mm512_slli_epi16(ramp, 1);
    const __m512i odd = _mm512_or_si512(even, _mm512_set1_epi16(1));
    __m512i even0 = _mm512_permutex2var_epi16(w.v0, even, w.v1);
    __m512i even1 = _mm512_permutex2var_epi16(w.v2, even, w.v3);
    __m512i odd0 = _mm512_permutex2var_epi16(w.v0, odd, w.v1);
    __m512i odd1 = _mm512_permutex2var_epi16(w.v2, odd, w.v3);
    return {
        _mm512_permutex2var_epi16(even0, even, even1), _mm512_permutex2var_epi16(odd0, even, odd1),
        _mm512_permutex2var_epi16(even0, odd, even1), _mm512_permutex2var_epi16(odd0, odd, odd1)};
  }
  return w;
}

void store_words(char* out, const Words& w) {
  _mm512_store_si512(out, w.v0);
  _mm512_store_si512(out + 64, w.v1);
  _mm512_store_si512(out + 128, w.v2);
  _mm512_store_si512(out + 192, w.v3);
}

void store_floats(char* out, const Floats& f) {
  auto* p = reinterpret_cast<float*>(out);
  _mm512_store_ps(p, f.v0);
  _mm512_store_ps(p + 16, f.v1);
  _mm512_store_ps(p + 32, f.v2);
  _mm512_store_ps(p + 48, f.v3);
  _mm512_store_ps(p + 64, f.v4);
  _mm512_store_ps(p + 80, f.v5);
  _mm512_store_ps(p + 96, f.v6);
  _mm512_store_ps(p + 112, f.v7);
}

// `columns` values at p (a bf16 or FP8 row) as words in natural order, zeros after them.
Words load_words(const char* p, DType t, const Fp8Lookup& lookup, int64_t columns) {
  if (t == DType::kBF16) {
    int64_t bytes = columns * 2;
    return {load_first(p, bytes), load_first(p + 64, bytes - 64), load_first(p + 128, bytes - 128),
            load_first(p + 192, bytes - 192)};
  }
  // Quarters that unpack puts side by side are brought next to each other first.
  const __m512i halves = _mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0);
  Words out;
  lookup.decode(_mm512_permutexvar_epi64(halves, load_first(p, columns)), out.v0, out.v1);
  lookup.decode(_mm512_permutexvar_epi64(halves, load_first(p + 64, columns - 64)), out.v2, out.v3);
  return out;
}

// Words in natural order as floats in natural order.
Floats widen(const Words& w) {
  __m512 out[8];
  const __m512i words[4] = {w.v0, w.v1, w.v2, w.v3};
  for (int j = 0; j < 4; ++j) {
    __m256i low = _mm512_castsi512_si256(words[j]);
    __m256i high = _mm512_extracti64x4_epi64(words[j], 1);
    out[2 * j] = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(low), 16));
    out[2 * j + 1] = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
  }
  return {out[0], out[1], out[2], out[3], out[4], out[5], out[6], out[7]};
}

void gather_floats(const float* p, const int32_t* columns, int64_t count, char* out) {
  for (int i = 0; i < 8; ++i) {
    __m512i index = _mm512_load_si512(columns + 16 * i);
    __mmask16 exists = _mm512_cmplt_epi32_mask(index, _mm512_set1_epi32(static_cast<int>(count)));
    __m512 v = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), exists, index, p, 4);
    _mm512_store_ps(out + 64 * i, v);
  }
}

void prepare_row(const Product& p, const Fp8Lookup& lookup, bool floats, int64_t r, char* out) {
  DType t = p.x.data.dtype;
  const char* data = static_cast<const char*>(p.x_data(r));
  int64_t chunk_bytes = floats ? 512 : 256;
  for (int64_t k = 0; k < p.k; k += kChunk, out += chunk_bytes) {
    int64_t columns = std::min(kChunk, p.k - k);
    if (t == DType::kF32) {
      gather_floats(reinterpret_cast<const float*>(data) + k, float_order_of(p.w_dtype).column,
                    columns, out);
    } else {
      Words w = load_words(data + k * dtype_size(t), t, lookup, columns);
      if (floats)
        store_floats(out, widen(w));
      else
        store_words(out, reorder(w, order_of(p.w_dtype)));
    }
  }
}

void prepare_range(const Product& p, bool floats, int64_t begin, int64_t end, char* data,
                   int64_t stride) {
  const Fp8Lookup lookup = Fp8Lookup::make(1.0f);
  for (int64_t r = begin; r < end; ++r) prepare_row(p, lookup, floats, r, data + r * stride);
}

void pack_rows(const Product& p, const int32_t* rows, int count, bool fold, char* tiles) {
  const Fp8Lookup lookup = Fp8Lookup::make(1.0f);
  DType t = p.x.data.dtype;
  Order order = order_of(p.w_dtype);
  __m512i vectors[4][16] = {};
  for (int64_t k = 0, c = 0; k < p.k; k += kChunk, ++c, tiles += 4096) {
    int64_t columns = std::min(kChunk, p.k - k);
    for (int i = 0; i < count; ++i) {
      const char* data = static_cast<const char*>(p.x_data(rows[i])) + k * dtype_size(t);
      Words w = reorder(load_words(data, t, lookup, columns), order);
      if (fold) {
        __m512 s = _mm512_set1_ps(p.x_scale(rows[i])[c]);
        w = {scale_words(w.v0, s), scale_words(w.v1, s), scale_words(w.v2, s),
             scale_words(w.v3, s)};
      }
      vectors[0][i] = w.v0;
      vectors[1][i] = w.v1;
      vectors[2][i] = w.v2;
      vectors[3][i] = w.v3;
    }
    for (int j = 0; j < 4; ++j) store_transposed(vectors[j], tiles + 1024 * j);
  }
}

HADAL_TARGET_END

}  // namespace

HADAL_TARGET_BEGIN(HADAL_TARGET_AVX512)

void write_in_order(const float* sums, const int32_t* positions, const Tensor& y, int64_t m,
                    int64_t first, int64_t last) {
  for (int64_t column = first; column < last; column += 16) {
    int64_t at = column - first;
    auto exists = static_cast<__mmask16>(first_bytes(last - column));
    __m512i index = _mm512_load_si512(positions + at % kChunk);
    __m512 v = _mm512_i32gather_ps(index, sums + at / kChunk * kChunk, 4);
    if (y.dtype == DType::kF32)
      _mm512_mask_storeu_ps(y.at<float>(m, column), exists, v);
    else
      _mm256_mask_storeu_epi16(y.at<BF16>(m, column), exists, round_to_bf16(v));
  }
}

HADAL_TARGET_END

const int32_t* float_positions(DType weight) { return float_order_of(weight).position; }

const int32_t* pair_positions(DType weight) { return float_order_of(weight).pair_position; }

Order order_of(DType weight) {
  if (weight == DType::kF8E4M3) return Order::kFp8;
  return weight == DType::kI8 ? Order::kFp4 : Order::kNatural;
}

PreparedRows prepare_rows(ThreadPool& threads, const Product& p) {
  thread_local Scratch data_memory, scale_memory;
  bool floats = needs_floats(p), coded = p.x.data.dtype == DType::kF8E4M3;
  int64_t chunks = (p.k + kChunk - 1) / kChunk;
  PreparedRows out;
  out.chunk_bytes = floats ? 512 : 256;
  // One line more than the row: rows whose pitch is a multiple of 4 KiB evict each other from L1.
  out.stride = chunks * out.chunk_bytes + 64;
  auto* data = static_cast<char*>(data_memory.grow(p.x_rows * out.stride));
  auto* scales = static_cast<float*>(scale_memory.grow((coded ? p.x_rows : 1) * chunks * 4));
  if (!coded) std::fill_n(scales, chunks, 1.0f);
  // A few rows are not worth waking the workers for.
  int64_t grain = std::max<int64_t>(1, 16384 / p.k);
  threads.run(p.x_rows, grain, [&](int64_t begin, int64_t end, int) {
    prepare_range(p, floats, begin, end, data, out.stride);
    for (int64_t r = begin; coded && r < end; ++r)
      std::copy_n(p.x_scale(r), chunks, scales + r * chunks);
  });
  out.data = data;
  out.scales = scales;
  out.scale_stride = coded ? chunks : 0;
  return out;
}

void pack_tile(const Product& p, const int32_t* rows, int count, bool fold, char* tiles,
               float* scales) {
  bool coded = p.x.data.dtype == DType::kF8E4M3;
  int64_t chunks = (p.k + kChunk - 1) / kChunk;
  pack_rows(p, rows, count, fold && coded, tiles);
  for (int64_t c = 0; c < chunks; ++c)
    for (int i = 0; i < 16; ++i)
      scales[c * 16 + i] = coded && !fold && i < count ? p.x_scale(rows[i])[c] : 1.0f;
}

}  // namespace hadal
