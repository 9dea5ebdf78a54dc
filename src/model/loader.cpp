// Binds the tensors of a source to the structs, checking each: present, shape, dtype, scales,
// finite small values. One sentence for the first fault.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "model/binder.h"
#include "model/tensor_names.h"

namespace hadal {
namespace {

int64_t blocks(int64_t n) { return (n + kFp8Block - 1) / kFp8Block; }

std::string describe(const std::vector<DType>& dtypes, const std::vector<int64_t>& shape) {
  std::string text;
  for (size_t i = 0; i < dtypes.size(); ++i) {
    text += i == 0 ? "" : i + 1 == dtypes.size() ? " or " : ", ";
    text += dtype_name(dtypes[i]);
  }
  return fmt::format("{} [{}]", text, fmt::join(shape, ", "));
}

bool same_shape(const Tensor& t, const std::vector<int64_t>& shape) {
  if (t.rank != static_cast<int>(shape.size())) return false;
  for (int i = 0; i < t.rank; ++i) {
    if (t.shape[i] != shape[i]) return false;
  }
  return true;
}

bool allowed(DType dtype, const std::vector<DType>& dtypes) {
  return std::find(dtypes.begin(), dtypes.end(), dtype) != dtypes.end();
}

std::vector<DType> dtypes_of(TensorRole role) {
  switch (role) {
    case TensorRole::kHyper:
    case TensorRole::kBias:
      return {DType::kF32};
    case TensorRole::kTable:
      return {DType::kI64};
    default:
      return {DType::kBF16, DType::kF32, DType::kF16};
  }
}

float value_at(const Tensor& t, int64_t i) {
  switch (t.dtype) {
    case DType::kBF16:
      return bf16_to_f32(static_cast<const BF16*>(t.data)[i]);
    case DType::kF16:
      return f16_to_f32(static_cast<const uint16_t*>(t.data)[i]);
    default:
      return static_cast<const float*>(t.data)[i];
  }
}

// Entry e of a packed [E, n, k] tensor.
Tensor entry(const Tensor& t, int64_t e) {
  Tensor cut = t.slice(0, e, e + 1);
  return cut.reshape({t.shape[1], t.shape[2]});
}

}  // namespace

Loader::Loader(const Config& config, const TensorSource& source, const Progress& progress)
    : Binder(config), source_(source), progress_(progress) {
  if (progress_) {
    for (const auto& name : source.names()) {
      if (!is_draft_name(config, name)) total_ += source.find(name)->bytes();
    }
  }
  transformers_ = config.family == Family::kV4 && !source.find("embed.weight") &&
                  source.find("model.embed_tokens.weight");
}

void Loader::fail(const std::string& name, const std::string& what) {
  if (!fault_) fault_ = Error{fmt::format("{}: tensor {} {}", source_.where(name), name, what)};
}

std::string Loader::found_name(const std::string& released) const {
  if (!transformers_) return released;
  std::vector<std::string> names = transformers_v4_names(released);
  for (const auto& name : names) {
    if (source_.find(name)) return name;
  }
  return names[0];
}

std::string Loader::scale_name(const std::string& stem) const {
  return found_name(stem + (config_.family == Family::kV4 ? ".scale" : ".weight_scale_inv"));
}

std::optional<Tensor> Loader::take(const std::string& name) {
  auto t = source_.find(name);
  if (!t) return t;
  used_.insert(name);
  if (progress_) progress_(done_ += t->bytes(), total_);
  return t;
}

Tensor Loader::checked(const std::string& name, const std::vector<int64_t>& shape,
                       const std::vector<DType>& dtypes) {
  if (fault_) return {};
  auto t = take(name);
  if (!t) {
    fail(name, "is missing, expected " + describe(dtypes, shape));
  } else if (!allowed(t->dtype, dtypes) || !same_shape(*t, shape)) {
    fail(name, fmt::format("is {}, expected {}", t->describe(), describe(dtypes, shape)));
  }
  return fault_ ? Tensor{} : *t;
}

Tensor Loader::tensor(const std::string& released, std::vector<int64_t> shape, TensorRole role) {
  if (fault_) return {};
  std::string name = found_name(released);
  Tensor t = checked(name, shape, dtypes_of(role));
  if (fault_) return {};
  if (role == TensorRole::kTable)
    check_table(name, t);
  else if (role != TensorRole::kEmbedding)
    check_finite(name, t);
  return t;
}

Weight Loader::matrix(const std::string& stem, int64_t n, int64_t k, TensorRole role) {
  if (fault_) return {};
  std::string name = found_name(stem + ".weight"), scale = scale_name(stem);
  std::vector<DType> dtypes = dtypes_of(role);
  if (role != TensorRole::kMatrix) dtypes.insert(dtypes.begin(), DType::kF8E4M3);
  auto t = take(name);
  if (t && t->dtype == DType::kI8 && role == TensorRole::kExpert && config_.family == Family::kV4) {
    if (k % kFp4Block != 0) {
      fail(name,
           fmt::format("is packed FP4 with {} columns, expected a multiple of {}", k, kFp4Block));
    } else if (!same_shape(*t, {n, k / 2})) {
      fail(name, fmt::format("is {}, expected I8 [{}, {}] (two FP4 columns a byte)", t->describe(),
                             n, k / 2));
    }
  } else if (!t) {
    fail(name, fmt::format("is missing{}, expected {}",
                           source_.find(scale) ? ", though its scale " + scale + " is there" : "",
                           describe(dtypes, {n, k})));
  } else if (!allowed(t->dtype, dtypes) || !same_shape(*t, {n, k})) {
    fail(name, fmt::format("is {}, expected {}", t->describe(), describe(dtypes, {n, k})));
  }
  return fault_ ? Weight{} : with_scale(name, scale, *t, n, k);
}

Weight Loader::with_scale(const std::string& name, const std::string& scale, Tensor data, int64_t n,
                          int64_t k) {
  Weight w;
  w.data = data;
  if (w.fp4()) {
    w.scale = checked(scale, {n, k / kFp4Block}, {DType::kF8E8M0});
  } else if (w.fp8()) {
    w.scale = checked(scale, {blocks(n), blocks(k)}, {DType::kF8E8M0, DType::kF32});
  } else if (source_.find(scale)) {
    fail(scale, fmt::format("is a scale, but {} is {} and takes none", name, data.describe()));
  }
  if (!fault_ && !w.scale.empty()) check_scale(scale, w.scale);
  return fault_ ? Weight{} : w;
}

void Loader::experts(int64_t layer, const std::string& stem, const char* gate, const char* up,
                     const char* down, MoeWeights& moe) {
  if (fault_) return;
  if (source_.find(packed_expert_names(layer).gate_up)) {
    packed_experts(layer, moe);
    return;
  }
  for (int64_t e = 0; e < config_.experts && !fault_; ++e) {
    std::string expert = stem + "." + std::to_string(e) + ".";
    int64_t inter = config_.moe_inter, hidden = config_.hidden;
    moe.gate.push_back(matrix(expert + gate, inter, hidden, TensorRole::kExpert));
    moe.up.push_back(matrix(expert + up, inter, hidden, TensorRole::kExpert));
    moe.down.push_back(matrix(expert + down, hidden, inter, TensorRole::kExpert));
  }
}

// The [E, n, k] tensor of all experts: plain, FP8, or (V4) packed FP4 with half the columns.
Tensor Loader::packed(const std::string& name, int64_t n, int64_t k) {
  auto t = source_.find(name);
  bool fp4 = t && t->dtype == DType::kI8 && config_.family == Family::kV4 && k % kFp4Block == 0;
  if (fp4) return checked(name, {config_.experts, n, k / 2}, {DType::kI8});
  return checked(name, {config_.experts, n, k},
                 {DType::kF8E4M3, DType::kBF16, DType::kF32, DType::kF16});
}

void Loader::packed_scale(const std::string& name, const std::string& scale, const Tensor& data,
                          int64_t n, int64_t k, Tensor& out) {
  if (fault_) return;
  if (data.dtype == DType::kI8) {
    out = checked(scale, {config_.experts, n, k / kFp4Block}, {DType::kF8E8M0});
  } else if (data.dtype == DType::kF8E4M3) {
    out = checked(scale, {config_.experts, blocks(n), blocks(k)}, {DType::kF8E8M0, DType::kF32});
  } else if (source_.find(scale)) {
    fail(scale, fmt::format("is a scale, but {} is {} and takes none", name, data.describe()));
  }
  if (!fault_ && !out.empty()) check_scale(scale, out);
}

void Loader::packed_experts(int64_t layer, MoeWeights& moe) {
  PackedExpertNames names = packed_expert_names(layer);
  int64_t inter = config_.moe_inter, hidden = config_.hidden;
  Tensor gate_up_scale, down_scale;
  Tensor gate_up = packed(names.gate_up, 2 * inter, hidden);
  packed_scale(names.gate_up, names.gate_up_scale, gate_up, 2 * inter, hidden, gate_up_scale);
  Tensor down = packed(names.down, hidden, inter);
  packed_scale(names.down, names.down_scale, down, hidden, inter, down_scale);
  if (fault_) return;
  for (int64_t e = 0; e < config_.experts; ++e) {
    Weight both{entry(gate_up, e), gate_up_scale.empty() ? Tensor{} : entry(gate_up_scale, e)};
    moe.gate.push_back(both.rows(0, inter));
    moe.up.push_back(both.rows(inter, 2 * inter));
    moe.down.push_back({entry(down, e), down_scale.empty() ? Tensor{} : entry(down_scale, e)});
  }
}

// Scales are finite and not negative; where the config promises powers of two, they are (a later
// step keeps the exponent alone, spec V3.2 2.3).
void Loader::check_scale(const std::string& name, const Tensor& scale) {
  if (scale.dtype == DType::kF8E8M0) {
    if (scale.size() > 0 && std::memchr(scale.data, 0xff, scale.size())) {
      fail(name, "holds a NaN (byte 255), expected finite scales");
    }
    return;
  }
  for (int64_t i = 0; i < scale.size(); ++i) {
    float v = value_at(scale, i);
    uint32_t bits = std::bit_cast<uint32_t>(v);
    if (!std::isfinite(v) || v < 0) {
      fail(name, fmt::format("holds the scale {}, expected finite numbers above 0", v));
    } else if (config_.pow2_scales && (bits & 0x7fffffu) != 0) {
      fail(name, fmt::format("holds the scale {}, expected powers of two as scale_fmt ue8m0 in "
                             "config.json says",
                             v));
    }
    if (fault_) return;
  }
}

void Loader::check_finite(const std::string& name, const Tensor& t) {
  for (int64_t i = 0; i < t.size(); ++i) {
    float v = value_at(t, i);
    if (!std::isfinite(v)) {
      fail(name, fmt::format("holds {} at index {}, expected finite numbers", v, i));
      return;
    }
  }
}

void Loader::check_table(const std::string& name, const Tensor& t) {
  const auto* ids = static_cast<const int64_t*>(t.data);
  for (int64_t i = 0; i < t.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= config_.router_experts) {
      fail(name, fmt::format("holds expert {} for token {}, expected 0 to {}", ids[i],
                             i / t.shape[1], config_.router_experts - 1));
      return;
    }
  }
}

Status Loader::finish() {
  if (fault_) return *fault_;
  for (const auto& name : source_.names()) {
    if (used_.count(name) || is_draft_name(config_, name)) continue;
    return Error{fmt::format(
        "{}: tensor {} is not part of a {} model with {} layers and {} "
        "experts; does config.json belong to these files?",
        source_.where(name), name, config_.model_type, config_.layers, config_.experts)};
  }
  return {};
}

}  // namespace hadal
