// Counting: layers, parameters, bytes, cache. Rendering is in inspect_text.cpp.
#include "model/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "model/tensor_names.h"
#include "model/weights.h"

namespace hadal {
namespace {

int64_t spec_bytes(const TensorSpec& spec) {
  int64_t n = dtype_size(spec.dtypes[0]);
  for (int64_t d : spec.shape) n *= d;
  return n;
}

int64_t spec_parameters(const TensorSpec& spec) {
  if (spec.role == TensorRole::kScale || spec.role == TensorRole::kTable) return 0;
  int64_t n = spec.dtypes[0] == DType::kI8 ? 2 : 1;  // two FP4 weights a byte
  for (int64_t d : spec.shape) n *= d;
  return n;
}

void count_parameters(const std::vector<TensorSpec>& specs, ModelReport& report) {
  const Config& c = report.config;
  int64_t routed = 0;
  for (const auto& spec : specs) {
    report.expected_bytes += spec_bytes(spec);
    int64_t n = spec_parameters(spec);
    (spec.draft ? report.draft_parameters : report.parameters) += n;
    if (!spec.draft && spec.role == TensorRole::kExpert) routed += n;
  }
  report.expected_tensors = static_cast<int64_t>(specs.size());
  report.active_parameters = report.parameters - routed + routed / c.experts * c.experts_per_token;
}

void add_count(std::vector<ModelReport::Count>& counts, const std::string& name, int64_t n) {
  if (n > 0) counts.emplace_back(name, n);
}

void count_layers(ModelReport& report) {
  const Config& c = report.config;
  if (c.family == Family::kV4) {
    std::map<int, int64_t> ratios;
    for (int ratio : c.compress_ratios) ++ratios[ratio];
    for (auto [ratio, n] : ratios) {
      add_count(report.attention_layers, ratio == 0 ? "window" : fmt::format("ratio-{}", ratio), n);
    }
    add_count(report.feed_forward_layers, "MoE with hash router", c.hash_layers);
    add_count(report.feed_forward_layers, "MoE with learned router", c.layers - c.hash_layers);
    return;
  }
  bool sparse = c.family == Family::kV32;
  add_count(report.attention_layers, sparse ? "sparse MLA (lightning indexer)" : "MLA", c.layers);
  add_count(report.feed_forward_layers, "dense", c.dense_layers);
  add_count(report.feed_forward_layers, "MoE", c.layers - c.dense_layers);
}

// One latent of L + rotated key of R per token and layer; V3.2 adds one index key of Di.
std::vector<CacheCost> v3_cache(const Config& c) {
  int64_t latent = c.kv_rank, rope = c.rope_dim;
  int64_t index = c.family == Family::kV32 ? c.index_dim : 0;
  int64_t packed = latent + 4 * ((latent + 127) / 128) + 2 * rope;
  auto cost = [&](const std::string& format, int64_t per_layer) {
    return CacheCost{format, static_cast<double>(c.layers * per_layer), 0};
  };
  if (index == 0) return {cost("bf16", 2 * (latent + rope)), cost("FP8", packed)};
  return {cost("bf16", 2 * (latent + rope) + 2 * index),
          cost("FP8 entries, FP8 index keys", packed + index + 4)};
}

// Per layer: one entry of D per `ratio` tokens, ratio 4 with an index key of Di; a ring of `window`
// entries; the compressors' partial rows in fp32 (spec V4 section 7).
std::vector<CacheCost> v4_cache(const Config& c) {
  auto cost = [&](const std::string& format, int64_t entry, int64_t index) {
    CacheCost sum{format, 0, 0};
    for (int ratio : c.compress_ratios) {
      sum.bytes_fixed += c.window * entry;
      if (ratio == 0) continue;
      sum.bytes_per_token += static_cast<double>(entry + (ratio == 4 ? index : 0)) / ratio;
      int64_t rows = ratio == 4 ? 8 : ratio, halves = ratio == 4 ? 2 : 1;
      int64_t width = c.head_dim + (ratio == 4 ? c.index_dim : 0);
      sum.bytes_fixed += 2 * rows * halves * width * 4;
    }
    return sum;
  };
  // e4m3 without the rotated part, bf16 of that, one E8M0 scale per 64 padded to 8 bytes.
  int64_t plain = c.head_dim - c.rope_dim, scales = ((plain + 63) / 64 + 7) / 8 * 8;
  int64_t packed = plain + 2 * c.rope_dim + scales;
  return {cost("bf16", 2 * c.head_dim, 2 * c.index_dim),
          cost("FP8 entries, FP4 index keys", packed, c.index_dim / 2 + c.index_dim / 32),
          cost("FP8 entries, FP8 index keys", packed, c.index_dim + 4)};
}

std::string describe_quantisation(const Config& c, const std::vector<StoredTensor>& tensors) {
  if (!c.fp8 && !c.fp4_experts) return "none";
  bool f32_scales = c.family != Family::kV4;
  for (const auto& t : tensors) {
    if (!t.name.ends_with(".scale") && !t.name.ends_with("_scale_inv")) continue;
    if (t.name.find(".hc_") != t.name.npos || t.name.find("_hc.") != t.name.npos) continue;
    f32_scales = t.dtype == DType::kF32;
    if (f32_scales) break;
  }
  std::string text =
      fmt::format("FP8 E4M3 in blocks of 128 x 128, {} scales{}", f32_scales ? "F32" : "E8M0",
                  f32_scales && c.pow2_scales ? " that are powers of two" : "");
  if (c.fp4_experts) text += "; routed experts FP4 E2M1 in blocks of 1 x 32, E8M0 scales";
  return text;
}

// Compares config and headers: names that nobody has, shapes that differ.
void find_problems(const std::vector<TensorSpec>& specs, const CheckpointHeaders& headers,
                   ModelReport& report) {
  const Config& c = report.config;
  std::unordered_map<std::string, const StoredTensor*> there;
  for (const auto& t : headers.tensors) there[t.name] = &t;
  std::unordered_set<std::string> elsewhere(headers.missing_tensors.begin(),
                                            headers.missing_tensors.end());
  auto known = [&](const std::string& n) { return there.count(n) || elsewhere.count(n); };
  bool transformers = c.family == Family::kV4 && !known("embed.weight");
  bool packed = false;
  for (int64_t l = 0; l < c.layers; ++l) packed |= known(packed_expert_names(l).gate_up);
  int64_t absent = 0, other = 0;
  std::string first_absent, first_other;
  for (const auto& spec : specs) {
    bool expert = spec.name.find(".experts.") != spec.name.npos;
    if (spec.draft || (packed && expert)) continue;
    std::vector<std::string> names = {spec.name};
    if (transformers) names = transformers_v4_names(spec.name);
    auto name = std::find_if(names.begin(), names.end(), known);
    if (name == names.end()) {
      // A scale is not there where its matrix is not quantised after all.
      if (spec.role != TensorRole::kScale && absent++ == 0) first_absent = names[0];
      continue;
    }
    auto it = there.find(*name);
    if (it == there.end()) continue;
    Tensor t = it->second->view(nullptr);
    std::vector<int64_t> shape(t.shape.begin(), t.shape.begin() + t.rank);
    if (shape != spec.shape && other++ == 0) {
      first_other = fmt::format("{} is {}, config.json asks for [{}]", *name, t.describe(),
                                fmt::join(spec.shape, ", "));
    }
  }
  if (absent > 0) {
    report.problems.push_back(fmt::format(
        "{} tensors that config.json asks for are in no file and no index, the first is {}", absent,
        first_absent));
  }
  if (other > 0) {
    report.problems.push_back(
        fmt::format("{} tensors have another shape, the first: {}", other, first_other));
  }
}

void count_bytes(const CheckpointHeaders& headers, ModelReport& report) {
  std::map<std::string, int64_t> by_dtype;
  for (const auto& t : headers.tensors) {
    report.bytes += t.bytes();
    by_dtype[dtype_name(t.dtype)] += t.bytes();
  }
  report.bytes_by_dtype.assign(by_dtype.begin(), by_dtype.end());
  std::sort(report.bytes_by_dtype.begin(), report.bytes_by_dtype.end(),
            [](const auto& a, const auto& b) {
              return std::pair(-a.second, a.first) < std::pair(-b.second, b.first);
            });
}

}  // namespace

Config config_as_stored(const Config& config, const std::vector<StoredTensor>& tensors) {
  Config c = config;
  bool matrix = false, fp8 = false, expert = false, fp4 = false;
  for (const auto& t : tensors) {
    bool weight = t.rank >= 2 && !t.name.ends_with("scale") && !t.name.ends_with("scale_inv");
    bool routed = weight && t.name.find(".experts.") != t.name.npos;
    matrix |= weight;
    fp8 |= weight && t.dtype == DType::kF8E4M3;
    expert |= routed;
    fp4 |= routed && t.dtype == DType::kI8;
  }
  if (expert) c.fp4_experts = fp4;
  // Shards without any FP8 matrix prove nothing while others are missing; experts in FP4 do.
  if (matrix && (fp8 || fp4)) c.fp8 = true;
  return c;
}

ModelReport inspect_model(const Config& config, const CheckpointHeaders* headers,
                          const std::string& location) {
  ModelReport report;
  report.location = location;
  report.config = headers ? config_as_stored(config, headers->tensors) : config;
  std::vector<TensorSpec> specs = expected_tensors(report.config);
  count_layers(report);
  count_parameters(specs, report);
  report.cache = config.family == Family::kV4 ? v4_cache(config) : v3_cache(config);
  if (headers) {
    report.files = headers->files;
    report.missing_files = headers->missing_files;
    report.missing_tensors = static_cast<int64_t>(headers->missing_tensors.size());
    report.tensors = headers->tensors;
    count_bytes(*headers, report);
    find_problems(specs, *headers, report);
  }
  report.quantisation = describe_quantisation(report.config, report.tensors);
  return report;
}

Result<ModelReport> inspect_model(const std::string& location) {
  bool config_alone = location.ends_with(".json");
  std::string path = config_alone ? location : location + "/config.json";
  HADAL_TRY(std::string text, read_file(path));
  HADAL_TRY(Config config, parse_config(text, path));
  bool files = !config_alone && (file_exists(location + "/model.safetensors") ||
                                 file_exists(location + "/model.safetensors.index.json"));
  if (!files) return inspect_model(config, nullptr, location);
  HADAL_TRY(CheckpointHeaders headers, open_headers(location));
  return inspect_model(config, &headers, location);
}

}  // namespace hadal
