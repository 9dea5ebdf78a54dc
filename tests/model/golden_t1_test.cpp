// Golden model T1: weights from a formula, numbers from an independent float64 implementation that
// agrees with the official file (spec V4 10.3).
#include <gtest/gtest.h>

#include <cmath>

#include "model/runner.h"

namespace hadal {
namespace {

Config t1_config() {
  Config c;
  c.family = Family::kV4;
  c.model_type = "deepseek_v4";
  c.vocab = 97;
  c.hidden = 64;
  c.layers = 4;
  c.heads = 4;
  c.q_rank = 32;
  c.rope_dim = 64;
  c.max_context = 1 << 20;
  c.head_dim = 128;
  c.o_rank = 16;
  c.o_groups = 2;
  c.window = 8;
  c.compress_ratios = {0, 4, 128, 4};
  c.compress_rope_theta = 160000;
  c.rope_scaling = {16, 65536, 32, 1, 0, 0};
  c.hash_layers = 1;
  c.swiglu_limit = 0.6;
  c.streams = 4;
  c.sinkhorn_iters = 20;
  c.hc_eps = 1e-6;
  c.index_heads = 16;
  c.index_dim = 64;
  c.index_topk = 6;
  c.experts = c.router_experts = 8;
  c.shared_experts = 1;
  c.experts_per_token = 2;
  c.moe_inter = c.shared_inter = 32;
  c.route_scale = 1.5;
  c.score = Config::Score::kSqrtSoftplus;
  c.pow2_scales = true;
  return c;
}

bool ends_with_any(const std::string& s, std::initializer_list<const char*> ends) {
  for (const char* e : ends)
    if (s.ends_with(e)) return true;
  return false;
}

// Every tensor a function of its name and index.
class FormulaSource : public TensorSource {
 public:
  explicit FormulaSource(const Config& config) {
    for (const TensorSpec& spec : expected_tensors(config)) make(spec);
  }
  std::optional<Tensor> find(const std::string& name) const override {
    auto it = tensors_.find(name);
    if (it == tensors_.end()) return std::nullopt;
    return it->second;
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> all;
    for (const auto& [name, tensor] : tensors_) all.push_back(name);
    return all;
  }
  std::string where(const std::string&) const override { return "formula"; }

 private:
  static double unit(uint64_t seed, uint64_t i) {
    uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    z ^= z >> 31;
    return static_cast<double>(z >> 11) * 0x1p-53 * 2 - 1;
  }

  void make(const TensorSpec& spec) {
    int64_t n = 1;
    for (int64_t d : spec.shape) n *= d;
    Tensor t;
    t.rank = static_cast<int>(spec.shape.size());
    for (int i = t.rank - 1, s = 1; i >= 0; --i) {
      t.shape[i] = spec.shape[i];
      t.stride[i] = s;
      s *= static_cast<int>(spec.shape[i]);
    }
    if (spec.name.ends_with("tid2eid")) {
      t.dtype = DType::kI64;
      auto& v = ids_[spec.name];
      for (int64_t token = 0; token < n / 2; ++token) {
        v.push_back(token % 8);
        v.push_back((token + 3) % 8);
      }
      t.data = v.data();
    } else {
      auto& v = floats_[spec.name];
      v.resize(n);
      t.dtype = DType::kF32;
      uint64_t seed = 0xcbf29ce484222325ull;
      for (unsigned char ch : spec.name) seed = (seed ^ ch) * 0x100000001b3ull;
      double last = static_cast<double>(spec.shape.back());
      for (int64_t i = 0; i < n; ++i) {
        double u = unit(seed, i);
        double value = ends_with_any(spec.name, {"norm.weight", "_scale"}) ? 1 + 0.3 * u
                       : ends_with_any(spec.name, {"_base", "gate.bias", "attn_sink", ".ape"})
                           ? 1.2 * u
                       : spec.name == "embed.weight" ? 1.7 * u
                                                     : 2.0 * u / std::sqrt(last);
        v[i] = static_cast<float>(value);
      }
      t.data = v.data();
    }
    tensors_[spec.name] = t;
  }

  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::vector<float>> floats_;
  std::map<std::string, std::vector<int64_t>> ids_;
};

std::vector<int32_t> t1_tokens() {
  std::vector<int32_t> ids;
  for (int p = 0; p < 300; ++p) ids.push_back((31 * p + 7) % 96);
  return ids;
}

struct Golden {
  int position, argmax;
  double norm, first[4];
};

constexpr Golden kPlain[] = {
    {0, 65, 9.093914, {1.011729, -1.051929, 0.269513, 0.652559}},
    {3, 39, 10.122376, {1.576126, -1.413832, 0.006558, -0.527116}},
    {7, 84, 10.054574, {2.801133, 1.150494, 0.036068, 0.712790}},
    {8, 41, 10.744185, {1.097391, 0.053407, 0.881816, 1.087555}},
    {127, 61, 8.798997, {-0.266637, -1.921129, 0.040867, -0.647938}},
    {128, 92, 10.458079, {-1.006265, -0.981880, 0.699044, 0.070860}},
    {255, 19, 11.029584, {-0.104102, -0.468828, 0.272172, -0.515012}},
    {269, 3, 10.979576, {-0.059826, 1.102853, -2.046215, 2.529960}},
    {299, 54, 9.487616, {1.009444, 0.045783, -0.414998, -0.878708}},
};

constexpr Golden kQuantised[] = {
    {0, 65, 9.134623, {1.047106, -1.092790, 0.251958, 0.637373}},
    {3, 39, 10.143138, {1.563201, -1.434382, 0.017206, -0.562853}},
    {7, 84, 10.033194, {2.786148, 1.176018, -0.001082, 0.723187}},
    {8, 41, 10.743808, {1.087352, 0.056202, 0.868999, 1.092957}},
    {127, 92, 8.588440, {-0.356593, -1.843883, 0.354189, -0.555765}},
    {255, 39, 11.080981, {-0.168438, -0.375894, 0.174892, -0.530922}},
    {269, 3, 11.167186, {0.095906, 1.293156, -1.870359, 2.676558}},
};

void expect_golden(std::span<const Golden> table, const std::vector<float>& logits,
                   double tolerance) {
  constexpr int kVocab = 97;
  for (const Golden& g : table) {
    SCOPED_TRACE("position " + std::to_string(g.position));
    const float* row = logits.data() + g.position * kVocab;
    EXPECT_EQ(argmax(row, kVocab), g.argmax);
    double sum = 0;
    for (int i = 0; i < kVocab; ++i) sum += double(row[i]) * row[i];
    // The table is printed to six decimals; the tolerance is relative to the row's norm.
    EXPECT_NEAR(std::sqrt(sum), g.norm, tolerance * g.norm + 1e-6);
    for (int i = 0; i < 4; ++i) EXPECT_NEAR(row[i], g.first[i], tolerance * g.norm + 1e-6);
  }
}

TEST(GoldenT1, FormulaGivesThePublishedFirstValues) {
  FormulaSource source(t1_config());
  auto first = [&](const char* name, int i) { return source.find(name)->at<float>()[i]; };
  EXPECT_NEAR(first("embed.weight", 0), 0.05956795, 1e-8);
  EXPECT_NEAR(first("embed.weight", 2), 1.12074757, 1e-7);
  EXPECT_NEAR(first("layers.1.attn.compressor.ape", 1), 1.16131330, 1e-7);
  EXPECT_NEAR(first("layers.3.ffn.experts.7.w2.weight", 0), -0.04385539, 1e-8);
  EXPECT_NEAR(first("layers.0.hc_attn_base", 2), 0.40534237, 1e-8);
}

TEST(GoldenT1, LogitsWithoutQuantisation) {
  FormulaSource source(t1_config());
  Runner runner(t1_config(), source, Numerics::exact(), 512);
  auto ids = t1_tokens();
  for (size_t chunk : {300, 1, 3, 7, 64, 129}) {
    SCOPED_TRACE("chunk " + std::to_string(chunk));
    Sequence sequence(runner.pool());
    expect_golden(kPlain, runner.run(sequence, ids, chunk), 1e-5);
  }
}

TEST(GoldenT1, LogitsWithCacheQuantisation) {
  FormulaSource source(t1_config());
  Runner runner(t1_config(), source, {DType::kF32, false, true}, 512);
  auto ids = t1_tokens();
  for (size_t chunk : {300, 1, 64}) {
    SCOPED_TRACE("chunk " + std::to_string(chunk));
    Sequence sequence(runner.pool());
    expect_golden(kQuantised, runner.run(sequence, ids, chunk), 2e-3);
  }
}

TEST(GoldenT1, ResidualStreamsAfterEachLayer) {
  struct Row {
    int position, layer;
    double first, second, last, sum;
  };
  constexpr Row kRows[] = {
      {0, 0, -0.431882, 1.753989, -1.498238, 6.089774},
      {0, 1, -1.042062, 1.546437, -2.890182, -16.487032},
      {0, 2, -1.137187, 2.221645, -2.469419, 7.738870},
      {0, 3, -1.935358, 1.791557, -2.977294, 9.824561},
      {8, 0, -1.342516, -1.769080, 0.399662, -64.339516},
      {8, 1, -0.321037, -1.350481, 0.122677, -39.872314},
      {8, 2, -0.320064, -2.143190, 0.406750, -26.392288},
      {8, 3, -0.202318, -2.595024, 0.920033, -55.503378},
      {299, 0, -0.660394, -0.024046, 0.036656, 31.599125},
      {299, 1, -0.487781, 0.116004, 0.375811, 40.141362},
      {299, 2, 0.215067, -0.279104, 0.305488, 59.779001},
      {299, 3, 2.539088, -1.491593, -0.316938, 26.045767},
  };
  FormulaSource source(t1_config());
  Runner runner(t1_config(), source, Numerics::exact(), 512);
  int seen = 0;
  runner.model().observer = [&](int64_t layer, const Tensor& x) {
    for (const Row& r : kRows) {
      if (r.layer != layer) continue;
      ++seen;
      const float* v = x.at<float>(r.position);
      double sum = 0;
      for (int i = 0; i < 256; ++i) sum += v[i];
      EXPECT_NEAR(v[0], r.first, 2e-5) << r.position << " layer " << layer;
      EXPECT_NEAR(v[1], r.second, 2e-5);
      EXPECT_NEAR(v[255], r.last, 2e-5);
      EXPECT_NEAR(sum, r.sum, 2e-3);
    }
  };
  Sequence sequence(runner.pool());
  auto ids = t1_tokens();
  runner.run(sequence, ids, 300);
  EXPECT_EQ(seen, 12);
}

TEST(GoldenT1, RewindGivesTheSameLogitsAgain) {
  FormulaSource source(t1_config());
  Runner runner(t1_config(), source, Numerics::exact(), 512);
  auto ids = t1_tokens();
  Sequence straight(runner.pool()), undone(runner.pool());
  auto want = runner.run(straight, ids, 300);
  runner.run(undone, std::span(ids).first(260), 260);
  std::vector<int32_t> wrong(kMaxRewind, 11);
  for (int64_t at = 260; at + kMaxRewind < 300; ++at) {
    // A draft of the greatest length is run and rejected, then one true token is run.
    runner.step({{&undone, wrong}});
    ASSERT_TRUE(undone.can_rewind(at));
    undone.rewind(at);
    auto got = runner.step({{&undone, std::span(ids).subspan(at, 1)}});
    for (int i = 0; i < 97; ++i)
      ASSERT_NEAR(got[i], want[at * 97 + i], 1e-4) << "position " << at << " logit " << i;
  }
}

}  // namespace
}  // namespace hadal
