// The inventory of a config: the walk of its family, recorded.
#include "model/weights.h"

#include "model/binder.h"

namespace hadal {
namespace {

int64_t blocks(int64_t n) { return (n + kFp8Block - 1) / kFp8Block; }

std::vector<DType> plain_dtypes() { return {DType::kBF16, DType::kF32, DType::kF16}; }

std::vector<DType> dtypes_of(TensorRole role) {
  switch (role) {
    case TensorRole::kHyper:
      return {DType::kF32};
    case TensorRole::kTable:
      return {DType::kI64};
    case TensorRole::kBias:
      return {DType::kF32};
    default:
      return plain_dtypes();
  }
}

}  // namespace

Tensor Recorder::tensor(const std::string& name, std::vector<int64_t> shape, TensorRole role) {
  specs.push_back({name, std::move(shape), dtypes_of(role), role, draft_});
  return {};
}

Weight Recorder::matrix(const std::string& stem, int64_t n, int64_t k, TensorRole role) {
  bool quantised = config_.fp8 && role != TensorRole::kMatrix;
  bool fp4 = config_.fp4_experts && role == TensorRole::kExpert;
  bool v4 = config_.family == Family::kV4;
  std::string weight = stem + ".weight", scale = stem + (v4 ? ".scale" : ".weight_scale_inv");
  if (fp4) {
    specs.push_back({weight, {n, k / 2}, {DType::kI8}, role, draft_});
    specs.push_back({scale, {n, k / kFp4Block}, {DType::kF8E8M0}, TensorRole::kScale, draft_});
  } else if (quantised) {
    std::vector<DType> dtypes = plain_dtypes();
    dtypes.insert(dtypes.begin(), DType::kF8E4M3);
    specs.push_back({weight, {n, k}, dtypes, role, draft_});
    std::vector<DType> scales = {DType::kF8E8M0, DType::kF32};
    if (!v4) std::swap(scales[0], scales[1]);
    specs.push_back({scale, {blocks(n), blocks(k)}, scales, TensorRole::kScale, draft_});
  } else {
    specs.push_back({weight, {n, k}, plain_dtypes(), role, draft_});
  }
  return {};
}

void Recorder::experts(int64_t, const std::string& stem, const char* gate, const char* up,
                       const char* down, MoeWeights&) {
  int64_t inter = config_.moe_inter, hidden = config_.hidden;
  for (int64_t e = 0; e < config_.experts; ++e) {
    std::string expert = stem + "." + std::to_string(e) + ".";
    matrix(expert + gate, inter, hidden, TensorRole::kExpert);
    matrix(expert + up, inter, hidden, TensorRole::kExpert);
    matrix(expert + down, hidden, inter, TensorRole::kExpert);
  }
}

std::vector<TensorSpec> expected_tensors(const Config& config) {
  Recorder recorder(config);
  if (config.family == Family::kV4) {
    V4Weights unused;
    walk_v4(recorder, unused, true);
  } else {
    V32Weights unused;
    walk_v32(recorder, unused, true);
  }
  return std::move(recorder.specs);
}

}  // namespace hadal
