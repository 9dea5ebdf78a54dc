// Fills one large arena, a chunk at a time, with xorshift words that are masked into valid codes.
#include "model/dummy.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <map>

namespace hadal {
namespace {

constexpr int64_t kChunk = 1 << 20;  // bytes that one random stream fills
constexpr int64_t kAlign = 64;       // of each tensor in the arena
constexpr int64_t kBatch = 512;      // chunks between two reports of progress
// Root mean square of the codes: +-2^-e (1 + m/8) for e = 0..3 (FP8, and BF16 alike), all of E2M1.
constexpr double kWideRms = 0.845, kFp4Rms = 2.93;

// Eight xorshift64 streams side by side, so that the compiler can fill whole vector registers.
class RandomWords {
 public:
  explicit RandomWords(uint64_t seed) {
    for (auto& s : state_) {
      seed += 0x9E3779B97F4A7C15ull;
      uint64_t z = (seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9ull;
      z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
      s = (z ^ (z >> 31)) | 1;  // a state of zero would stay zero
    }
    for (int i = 0; i < 4; ++i) advance();
  }

  // bytes / 64 blocks of ((random & keep) + add), as 64-bit words.
  void fill(uint64_t* out, int64_t bytes, uint64_t keep, uint64_t add) {
    for (int64_t i = 0; i < bytes / 8; i += 8) {
      advance();
      for (int l = 0; l < 8; ++l) out[i + l] = (state_[l] & keep) + add;
    }
  }

  // Uniform in [-1, 1).
  float unit() {
    if (lane_ == 8) {
      advance();
      lane_ = 0;
    }
    return static_cast<float>(static_cast<int64_t>(state_[lane_++]) >> 40) * 0x1p-23f;
  }
  uint64_t below(uint64_t n) { return static_cast<uint64_t>((unit() + 1.0f) * 0x1p23f) % n; }

 private:
  void advance() {
    for (auto& s : state_) {
      s ^= s << 13;
      s ^= s >> 7;
      s ^= s << 17;
    }
  }
  uint64_t state_[8];
  int lane_ = 8;
};

constexpr uint64_t every_byte(uint64_t b) { return b * 0x0101010101010101ull; }
constexpr uint64_t every_half(uint64_t h) { return h * 0x0001000100010001ull; }

uint64_t hash(uint64_t seed, const std::string& name) {
  uint64_t h = 0xcbf29ce484222325ull ^ seed;
  for (unsigned char c : name) h = (h ^ c) * 0x100000001b3ull;
  return h;
}

// The exponent that brings codes of this rms to rows of about unit length.
int row_exponent(double rms, int64_t k) {
  return static_cast<int>(std::lround(-std::log2(rms * std::sqrt(static_cast<double>(k)))));
}

struct Place {
  const TensorSpec* spec;
  int64_t offset, bytes;  // bytes: rounded up to kAlign
  int exponent = 0;       // scales: of the matrix that they belong to
};

void fill_small(const TensorSpec& spec, RandomWords& random, void* out, int64_t count) {
  float centre = 0, spread = 0.1f;
  if (spec.role == TensorRole::kNorm && !spec.name.ends_with(".bias")) centre = 1;
  if (spec.role == TensorRole::kHyper) {
    // fn rows of about unit length; the scales near 1, the bases near 0.
    spread = spec.shape.size() == 2 ? std::sqrt(3.0f / static_cast<float>(spec.shape[1])) : 0.5f;
    if (spec.name.ends_with("_scale")) centre = 1;
  }
  if (spec.name.ends_with("sink") || spec.name.ends_with(".ape")) spread = 0.5f;
  for (int64_t i = 0; i < count; ++i) {
    float v = centre + spread * random.unit();
    if (spec.dtypes[0] == DType::kF32)
      static_cast<float*>(out)[i] = v;
    else
      static_cast<BF16*>(out)[i] = f32_to_bf16(v);
  }
}

// Rows of distinct experts: steps of at most E / K from a random start never meet.
void fill_table(const TensorSpec& spec, int64_t experts, RandomWords& random, int64_t* out,
                int64_t count) {
  int64_t k = spec.shape[1];
  for (int64_t row = 0; row + k <= count; row += k) {
    int64_t start = static_cast<int64_t>(random.below(experts));
    int64_t step = 1 + static_cast<int64_t>(random.below(experts / k));
    for (int64_t j = 0; j < k; ++j) out[row + j] = (start + j * step) % experts;
  }
}

void fill_chunk(const Place& place, int64_t experts, RandomWords& random, char* out,
                int64_t bytes) {
  const TensorSpec& spec = *place.spec;
  DType dtype = spec.dtypes[0];
  int64_t count = bytes / dtype_size(dtype);
  auto* words = reinterpret_cast<uint64_t*>(out);
  if (spec.role == TensorRole::kTable) {
    fill_table(spec, experts, random, reinterpret_cast<int64_t*>(out), count);
  } else if (spec.role == TensorRole::kScale && dtype == DType::kF32) {
    auto* scales = reinterpret_cast<float*>(out);
    for (int64_t i = 0; i < count; ++i) {
      scales[i] = std::ldexp(1.0f, place.exponent - (random.unit() < 0));
    }
  } else if (spec.role == TensorRole::kScale) {
    random.fill(words, bytes, every_byte(1), every_byte(126 + place.exponent));
  } else if (dtype == DType::kF8E4M3) {
    random.fill(words, bytes, every_byte(0x9f), every_byte(0x20));  // exponents 2^-3 .. 2^0
  } else if (dtype == DType::kI8) {
    random.fill(words, bytes, ~uint64_t{0}, 0);  // all 16 codes are numbers
  } else if (dtype == DType::kBF16 && spec.role != TensorRole::kNorm) {
    bool embedding = spec.role == TensorRole::kEmbedding;
    int top = embedding ? 0 : row_exponent(kWideRms, spec.shape.back());
    random.fill(words, bytes, every_half(0x81ff),
                every_half(static_cast<uint64_t>(127 + top - 3) << 7));
  } else {
    fill_small(spec, random, out, count);
  }
}

// Free memory in bytes; nothing where the system does not say.
std::optional<int64_t> available_memory() {
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  for (int64_t kib; meminfo >> key >> kib; meminfo.ignore(64, '\n')) {
    if (key == "MemAvailable:") return kib * 1024;
  }
  return std::nullopt;
}

std::vector<Place> place_tensors(const std::vector<TensorSpec>& specs, int64_t& total) {
  std::vector<Place> places;
  for (size_t i = 0; i < specs.size(); ++i) {
    const TensorSpec& spec = specs[i];
    if (spec.draft) continue;
    int64_t bytes = dtype_size(spec.dtypes[0]);
    for (int64_t d : spec.shape) bytes *= d;
    Place place{&spec, total, (bytes + kAlign - 1) / kAlign * kAlign};
    if (spec.role == TensorRole::kScale) {
      const TensorSpec& matrix = specs[i - 1];  // a scale follows its matrix
      bool fp4 = matrix.dtypes[0] == DType::kI8;
      place.exponent = row_exponent(fp4 ? kFp4Rms : kWideRms, matrix.shape[1] * (fp4 ? 2 : 1));
    }
    total += place.bytes;
    places.push_back(place);
  }
  return places;
}

Tensor view_of(const TensorSpec& spec, const char* data) {
  Tensor t;
  t.data = const_cast<char*>(data);
  t.dtype = spec.dtypes[0];
  t.rank = static_cast<int>(spec.shape.size());
  int64_t stride = 1;
  for (int i = t.rank - 1; i >= 0; --i) {
    t.shape[i] = spec.shape[i];
    t.stride[i] = stride;
    stride *= spec.shape[i];
  }
  return t;
}

}  // namespace

Result<std::unique_ptr<DummySource>> DummySource::make(const Config& config, uint64_t seed,
                                                       ThreadPool& threads,
                                                       const Progress& progress) {
  std::vector<TensorSpec> specs = expected_tensors(config);
  int64_t total = 0, done = 0;
  std::vector<Place> places = place_tensors(specs, total);
  if (auto free = available_memory(); free && total > *free) {
    return Error{fmt::format(
        "random weights for this config take {:.1f} GB, this machine has {:.1f} GB free; take a "
        "config with fewer layers or experts",
        total * 1e-9, *free * 1e-9)};
  }
  std::unique_ptr<DummySource> source(new DummySource);
  source->arena_ = Buffer(total);
  struct Chunk {
    const Place* place;
    int64_t begin, bytes;
  };
  std::vector<Chunk> chunks;
  for (const Place& p : places) {
    source->tensors_[p.spec->name] = view_of(*p.spec, source->arena_.data() + p.offset);
    // A table is one chunk: its rows would straddle others.
    int64_t step = p.spec->role == TensorRole::kTable ? p.bytes : kChunk;
    for (int64_t at = 0; at < p.bytes; at += step) {
      chunks.push_back({&p, at, std::min(step, p.bytes - at)});
    }
  }
  int64_t count = static_cast<int64_t>(chunks.size());
  for (int64_t first = 0; first < count; first += kBatch) {
    int64_t n = std::min(kBatch, count - first);
    threads.run(n, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = first + begin; i < first + end; ++i) {
        const auto& [place, at, bytes] = chunks[i];
        RandomWords random(hash(seed, place->spec->name) + static_cast<uint64_t>(at));
        fill_chunk(*place, config.router_experts, random,
                   source->arena_.data() + place->offset + at, bytes);
      }
    });
    for (int64_t i = first; i < first + n; ++i) done += chunks[i].bytes;
    if (progress) progress(done, total);
  }
  return source;
}

Result<std::unique_ptr<DummySource>> DummySource::make_overlapping(const Config& config,
                                                                   uint64_t seed,
                                                                   ThreadPool& threads) {
  // One stretch of memory for each kind of tensor; every further tensor of the kind begins kShift
  // bytes later in it.
  constexpr int64_t kShift = 4096 + 64;  // no multiple meets a slice of another tensor of the kind
  std::vector<TensorSpec> specs = expected_tensors(config);
  int64_t unused = 0;
  std::vector<Place> places = place_tensors(specs, unused);
  using Kind = std::tuple<TensorRole, DType, int, std::vector<int64_t>>;
  struct Stretch {
    Place place;
    int64_t count = 0;
  };
  std::map<Kind, Stretch> stretches;
  auto kind_of = [](const Place& p) {
    return Kind{p.spec->role, p.spec->dtypes[0], p.exponent, p.spec->shape};
  };
  auto shifts = [](const Place& p) {  // small tensors and tables are one for all of their kind
    return p.bytes >= kShift && p.spec->role != TensorRole::kTable;
  };
  for (const Place& p : places) {
    Stretch& s = stretches.try_emplace(kind_of(p), Stretch{p, 0}).first->second;
    ++s.count;
  }
  int64_t total = 0;
  for (auto& [kind, s] : stretches) {
    s.place.offset = total;
    if (shifts(s.place)) s.place.bytes += s.count * kShift;
    total += s.place.bytes;
    s.count = 0;
  }
  std::unique_ptr<DummySource> source(new DummySource);
  source->arena_ = Buffer(total);
  for (auto& [kind, s] : stretches) {
    int64_t step = s.place.spec->role == TensorRole::kTable ? s.place.bytes : kChunk;
    int64_t chunks = (s.place.bytes + step - 1) / step;
    threads.run(chunks, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        RandomWords random(hash(seed, s.place.spec->name) + static_cast<uint64_t>(i));
        fill_chunk(s.place, config.router_experts, random,
                   source->arena_.data() + s.place.offset + i * step,
                   std::min(step, s.place.bytes - i * step));
      }
    });
  }
  for (const Place& p : places) {
    Stretch& s = stretches.at(kind_of(p));
    int64_t at = s.place.offset + (shifts(p) ? s.count++ * kShift : 0);
    source->tensors_[p.spec->name] = view_of(*p.spec, source->arena_.data() + at);
  }
  return source;
}

std::optional<Tensor> DummySource::find(const std::string& name) const {
  auto it = tensors_.find(name);
  if (it == tensors_.end()) return std::nullopt;
  return it->second;
}

std::vector<std::string> DummySource::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace hadal
