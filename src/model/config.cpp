// config.json to Config: the released spelling and the one that transformers writes, side by side.
// Every default of the engine is in this file; whatever would change results silently is refused.
#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "model/step.h"

namespace hadal {
namespace {

// A value as a message may show it.
std::string shown(const nlohmann::json& value) {
  std::string s = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return s.size() > 60 ? s.substr(0, 60) + "..." : s;
}

// Typed access to the keys of one JSON object. The first fault is kept and every later call returns
// a harmless value, so a parser reads like a list of keys. A key that holds null counts as absent.
class ConfigReader {
 public:
  using Json = nlohmann::json;

  // `prefix` is put before key names in messages; `fault` is shared by the readers of one file.
  ConfigReader(const Json& object, std::string path, std::string prefix,
               std::optional<Error>& fault)
      : object_(&object), path_(std::move(path)), prefix_(std::move(prefix)), fault_(&fault) {}

  bool has(const char* key) const { return find(key) != nullptr; }
  bool is_list(const char* key) const { return has(key) && find(key)->is_array(); }
  // An integer in [low, high]; `absent` where the key is not there, an error where that is not
  // given.
  int64_t integer(const char* key, int64_t low, int64_t high,
                  std::optional<int64_t> absent = std::nullopt);
  // A finite number in [low, high].
  double number(const char* key, double low, double high,
                std::optional<double> absent = std::nullopt);
  bool boolean(const char* key, bool absent);
  std::string text(const char* key, std::optional<std::string> absent = std::nullopt);
  std::vector<int64_t> integers(const char* key, int64_t low, int64_t high, size_t max_size);
  std::vector<std::string> texts(const char* key, size_t max_size);
  // The reader of a nested object; nothing where the key is not there.
  std::optional<ConfigReader> nested(const char* key);

  // "<path>: <prefix><key> <what>"
  void fail(const std::string& key, const std::string& what);
  bool failed() const { return fault_->has_value(); }

 private:
  const Json* find(const char* key) const;
  const Json* required(const char* key, bool optional);

  const Json* object_;
  std::string path_, prefix_;
  std::optional<Error>* fault_;
};

const ConfigReader::Json* ConfigReader::find(const char* key) const {
  auto it = object_->find(key);
  return it == object_->end() || it->is_null() ? nullptr : &*it;
}

const ConfigReader::Json* ConfigReader::required(const char* key, bool optional) {
  const Json* value = find(key);
  if (!value && !optional) fail(key, "is missing");
  return value;
}

void ConfigReader::fail(const std::string& key, const std::string& what) {
  if (!*fault_) *fault_ = Error{fmt::format("{}: {}{} {}", path_, prefix_, key, what)};
}

int64_t ConfigReader::integer(const char* key, int64_t low, int64_t high,
                              std::optional<int64_t> absent) {
  const Json* value = required(key, absent.has_value());
  if (!value) return absent.value_or(low);
  bool fits = value->is_number_integer() &&
              !(value->is_number_unsigned() && value->get<uint64_t>() > uint64_t(INT64_MAX));
  int64_t n = fits ? value->get<int64_t>() : low;
  if (fits && n >= low && n <= high) return n;
  fail(key, fmt::format("is {}, expected an integer from {} to {}", shown(*value), low, high));
  return low;
}

double ConfigReader::number(const char* key, double low, double high,
                            std::optional<double> absent) {
  const Json* value = required(key, absent.has_value());
  if (!value) return absent.value_or(low);
  double n = value->is_number() ? value->get<double>() : NAN;
  if (n >= low && n <= high) return n;
  fail(key, fmt::format("is {}, expected a number from {} to {}", shown(*value), low, high));
  return low;
}

bool ConfigReader::boolean(const char* key, bool absent) {
  const Json* value = find(key);
  if (!value) return absent;
  if (value->is_boolean()) return value->get<bool>();
  fail(key, fmt::format("is {}, expected true or false", shown(*value)));
  return absent;
}

std::string ConfigReader::text(const char* key, std::optional<std::string> absent) {
  const Json* value = required(key, absent.has_value());
  if (!value) return absent.value_or("");
  if (value->is_string()) return value->get<std::string>();
  fail(key, fmt::format("is {}, expected a string", shown(*value)));
  return "";
}

std::vector<int64_t> ConfigReader::integers(const char* key, int64_t low, int64_t high,
                                            size_t max_size) {
  const Json* value = required(key, false);
  if (!value) return {};
  std::vector<int64_t> list;
  bool good = value->is_array() && value->size() <= max_size;
  if (good) {
    for (const Json& v : *value) {
      good &= v.is_number_integer() &&
              !(v.is_number_unsigned() && v.get<uint64_t>() > uint64_t(INT64_MAX));
      if (!good) break;
      list.push_back(v.get<int64_t>());
      good &= list.back() >= low && list.back() <= high;
    }
  }
  if (good) return list;
  fail(key, fmt::format("is {}, expected a list of at most {} integers from {} to {}",
                        shown(*value), max_size, low, high));
  return {};
}

std::vector<std::string> ConfigReader::texts(const char* key, size_t max_size) {
  const Json* value = required(key, false);
  if (!value) return {};
  std::vector<std::string> list;
  bool good = value->is_array() && value->size() <= max_size;
  if (good) {
    for (const Json& v : *value) {
      good &= v.is_string();
      if (good) list.push_back(v.get<std::string>());
    }
  }
  if (good) return list;
  fail(key, fmt::format("is {}, expected a list of at most {} strings", shown(*value), max_size));
  return {};
}

std::optional<ConfigReader> ConfigReader::nested(const char* key) {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  if (value->is_object()) return ConfigReader(*value, path_, prefix_ + key + ".", *fault_);
  fail(key, fmt::format("is {}, expected an object", shown(*value)));
  return std::nullopt;
}

// Upper bounds far above any released model. With them, no product of sizes leaves 63 bits.
constexpr int64_t kMaxVocab = 1 << 24;
constexpr int64_t kMaxWidth = 1 << 17;  // hidden and intermediate sizes
constexpr int64_t kMaxRank = 1 << 16;   // low ranks, head sizes
constexpr int64_t kMaxHeads = 1 << 12;
constexpr int64_t kMaxLayers = 1 << 10;
constexpr int64_t kMaxExperts = 1 << 12;
constexpr int64_t kMaxDrafts = 8;
constexpr int64_t kMaxContext = 1 << 30;
constexpr int64_t kMaxRatio = 1 << 16;

void require_text(ConfigReader& r, const char* key, std::optional<std::string> absent,
                  const std::vector<std::string>& allowed) {
  std::string value = r.text(key, absent);
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
  r.fail(key, fmt::format("is \"{}\", this model runs only with \"{}\"", value.substr(0, 60),
                          fmt::join(allowed, "\" or \"")));
}

// Keys whose other values would need mathematics that this engine does not have.
void require_plain_model(ConfigReader& r) {
  require_text(r, "hidden_act", "silu", {"silu"});
  require_text(r, "topk_method", "noaux_tc", {"noaux_tc"});
  for (const char* key : {"attention_bias", "mlp_bias", "tie_word_embeddings"}) {
    if (r.boolean(key, false)) r.fail(key, "is true, this model runs only with false");
  }
  if (!r.boolean("rope_interleave", true)) {
    r.fail("rope_interleave", "is false, this model runs only with true");
  }
}

void parse_tokens(ConfigReader& r, Config& c) {
  c.vocab = r.integer("vocab_size", 1, kMaxVocab);
  c.bos_id = r.integer("bos_token_id", 0, c.vocab - 1, 0);
  // One id or a list of them.
  if (r.is_list("eos_token_id")) {
    c.eos_ids = r.integers("eos_token_id", 0, c.vocab - 1, 64);
    if (c.eos_ids.empty()) r.fail("eos_token_id", "is an empty list, expected at least one id");
  } else {
    c.eos_ids = {r.integer("eos_token_id", 0, c.vocab - 1, 1)};
  }
}

void parse_quantization(ConfigReader& r, Config& c) {
  auto q = r.nested("quantization_config");
  std::string experts = r.text("expert_dtype", "");
  if (q) {
    require_text(*q, "quant_method", std::nullopt, {"fp8"});
    require_text(*q, "fmt", "e4m3", {"e4m3"});
    require_text(*q, "activation_scheme", "dynamic", {"dynamic"});
    require_text(*q, "scale_fmt", "", {"", "ue8m0"});
    if (q->has("weight_block_size") &&
        q->integers("weight_block_size", 1, kMaxWidth, 2) != std::vector<int64_t>{128, 128}) {
      q->fail("weight_block_size", "must be [128, 128]");
    }
    c.fp8 = true;
    c.pow2_scales = q->text("scale_fmt", "") == "ue8m0";
    if (experts.empty()) experts = q->text("expert_dtype", "");
  }
  c.fp4_experts = experts == "fp4";
  if (!experts.empty() && experts != "fp4" && experts != "fp8" && experts != "bf16") {
    r.fail("expert_dtype",
           fmt::format("is \"{}\", expected fp4, fp8 or bf16", experts.substr(0, 60)));
  }
}

void parse_experts(ConfigReader& r, Config& c) {
  c.experts = r.integer(r.has("num_local_experts") ? "num_local_experts" : "n_routed_experts", 1,
                        kMaxExperts);
  c.shared_experts = r.integer("n_shared_experts", 1, 64);
  c.experts_per_token = r.integer("num_experts_per_tok", 1, c.experts);
  c.moe_inter = r.integer("moe_intermediate_size", 1, kMaxWidth);
  c.route_scale = r.number("routed_scaling_factor", 1e-6, 1e6);
  c.normalize_weights = r.boolean("norm_topk_prob", true);
  if (r.integer("moe_layer_freq", 1, kMaxLayers, 1) != 1) {
    r.fail("moe_layer_freq", "must be 1");
  }
}

// The lists of transformers name each layer; only "first ones this, the others that" is a model of
// these families. Returns the length of the leading run of `first`.
int64_t leading_run(ConfigReader& r, const char* key, const Config& c, const std::string& first,
                    const std::string& rest) {
  std::vector<std::string> kinds = r.texts(key, kMaxLayers);
  if (r.failed()) return 0;
  if (static_cast<int64_t>(kinds.size()) != c.layers) {
    r.fail(key, fmt::format("names {} layers, num_hidden_layers says {}", kinds.size(), c.layers));
    return 0;
  }
  auto end = std::find_if(kinds.begin(), kinds.end(), [&](auto& k) { return k != first; });
  for (auto it = end; it != kinds.end(); ++it) {
    if (*it != rest) {
      r.fail(key, fmt::format("must be some \"{}\" followed by \"{}\" only", first, rest));
    }
  }
  return end - kinds.begin();
}

// The scaling part of rope_scaling or rope_parameters. Amplitudes are checked by the caller.
void parse_scaling(ConfigReader& r, RopeScaling& s) {
  const char* key = r.has("rope_type") ? "rope_type" : "type";
  std::string type = r.text(key, "default");
  if (type == "default") return;
  if (type != "yarn") {
    r.fail(key, fmt::format("is \"{}\", this model runs only with \"yarn\" or \"default\"",
                            type.substr(0, 60)));
    return;
  }
  s.factor = r.number("factor", 1, 1e6);
  s.original_context = r.number("original_max_position_embeddings", 1, kMaxContext);
  s.beta_fast = r.number("beta_fast", 1e-3, 1e6, 32.0);
  s.beta_slow = r.number("beta_slow", 1e-3, 1e6, 1.0);
  if (s.beta_fast < s.beta_slow) r.fail("beta_fast", "must not be smaller than beta_slow");
  if (r.number("attention_factor", 0, 1e6, 1.0) != 1.0) {
    r.fail("attention_factor", "must be 1 or absent");
  }
}

// V3 family. The rotation's amplitude is the ratio of the two mscales: only a ratio of 1 occurs in
// the released models, and a missing pair means different things to different programs (spec V3.2
// section 3.4), so anything else is refused.
void parse_v3_rope(ConfigReader& r, Config& c) {
  auto scaling = r.nested("rope_parameters");
  if (!scaling) scaling = r.nested("rope_scaling");
  bool inside = scaling && scaling->has("rope_theta");
  c.rope_theta = (inside ? *scaling : r).number("rope_theta", 1, 1e15);
  if (!scaling || r.failed()) return;
  RopeScaling& s = c.rope_scaling;
  parse_scaling(*scaling, s);
  if (s.factor == 1.0) return;
  s.mscale = scaling->number("mscale", 0, 100, 0.0);
  s.mscale_all_dim = scaling->number("mscale_all_dim", 0, 100, 0.0);
  if (s.mscale != s.mscale_all_dim || s.mscale == 0) {
    scaling->fail("mscale", fmt::format("is {} and mscale_all_dim {}, expected two equal numbers "
                                        "above 0",
                                        s.mscale, s.mscale_all_dim));
  }
}

// V4: two tables. `main` (window-only layers) is plain; `compress` may be scaled. transformers
// writes both as objects, or one flat object that describes the second.
void parse_v4_rope(ConfigReader& r, Config& c) {
  auto parameters = r.nested("rope_parameters");
  std::optional<ConfigReader> main, compress;
  if (parameters && (parameters->has("main") || parameters->has("compress"))) {
    main = parameters->nested("main");
    compress = parameters->nested("compress");
    if (!main && !r.failed()) parameters->fail("main", "is missing");
    if (!compress && !r.failed()) parameters->fail("compress", "is missing");
  } else {
    compress = parameters ? parameters : r.nested("rope_scaling");
  }
  if (r.failed()) return;
  bool main_inside = main && main->has("rope_theta");
  ConfigReader& theta = main_inside                                 ? *main
                        : !r.has("rope_theta") && compress && !main ? *compress
                                                                    : r;
  c.rope_theta = theta.number("rope_theta", 1, 1e15);
  bool compress_inside = main && compress->has("rope_theta");
  c.compress_rope_theta = compress_inside ? compress->number("rope_theta", 1, 1e15)
                                          : r.number("compress_rope_theta", 1, 1e15);
  if (main)
    require_text(*main, main->has("rope_type") ? "rope_type" : "type", "default", {"default"});
  if (compress) parse_scaling(*compress, c.rope_scaling);
}

// qk_rope_head_dim, or partial_rotary_factor (its own key or inside rope_parameters) x head_dim.
void parse_v4_rope_dim(ConfigReader& r, Config& c) {
  double factor = r.number("partial_rotary_factor", 0, 1, 0.0);
  if (auto p = r.nested("rope_parameters")) {
    if (auto main = p->nested("main"))
      factor = main->number("partial_rotary_factor", 0, 1, factor);
    else
      factor = p->number("partial_rotary_factor", 0, 1, factor);
  }
  int64_t from_factor = static_cast<int64_t>(std::floor(factor * c.head_dim + 1e-6));
  c.rope_dim = r.integer("qk_rope_head_dim", 1, c.head_dim,
                         factor > 0 ? std::optional(from_factor) : std::nullopt);
  if (factor > 0 && c.rope_dim != from_factor) {
    r.fail("partial_rotary_factor", fmt::format("asks for {} rotated dims, qk_rope_head_dim for {}",
                                                from_factor, c.rope_dim));
  }
  if (c.rope_dim % 2 != 0 || c.rope_dim == 0) {
    r.fail("qk_rope_head_dim", fmt::format("is {}, expected an even number from 2", c.rope_dim));
  }
}

std::vector<int> ratios_from_layer_types(ConfigReader& r, const Config& c) {
  int64_t sparse = r.integer("compress_rate_csa", 4, 4, 4);
  int64_t heavy = r.integer("compress_rate_hca", 5, kMaxRatio, 128);
  if (auto rates = r.nested("compress_rates")) {
    sparse = rates->integer("compressed_sparse_attention", 4, 4, sparse);
    heavy = rates->integer("heavily_compressed_attention", 5, kMaxRatio, heavy);
  }
  std::vector<int> ratios;
  for (const std::string& kind : r.texts("layer_types", kMaxLayers)) {
    if (kind == "sliding_attention") {
      ratios.push_back(0);
    } else if (kind == "compressed_sparse_attention") {
      ratios.push_back(static_cast<int>(sparse));
    } else if (kind == "heavily_compressed_attention") {
      ratios.push_back(static_cast<int>(heavy));
    } else {
      r.fail("layer_types", fmt::format("holds \"{}\", expected sliding_attention, "
                                        "compressed_sparse_attention or "
                                        "heavily_compressed_attention",
                                        kind.substr(0, 60)));
    }
  }
  if (!r.failed() && static_cast<int64_t>(ratios.size()) != c.layers) {
    r.fail("layer_types",
           fmt::format("names {} layers, num_hidden_layers says {}", ratios.size(), c.layers));
  }
  return ratios;
}

void parse_ratios(ConfigReader& r, Config& c) {
  bool dspark = c.draft_markov_rank > 0;
  if (r.has("layer_types")) c.compress_ratios = ratios_from_layer_types(r, c);
  if (!r.has("compress_ratios") && r.has("layer_types")) return;
  std::vector<int64_t> listed =
      r.integers("compress_ratios", 0, kMaxRatio, kMaxLayers + kMaxDrafts);
  if (r.failed()) return;
  int64_t extra = static_cast<int64_t>(listed.size()) - c.layers;
  // DSpark checkpoints hold more stages than num_nextn_predict_layers says (spec V4 1.1).
  bool fits = extra == 0 || extra == c.draft_layers || (dspark && extra > 0 && extra <= kMaxDrafts);
  if (!fits) {
    r.fail("compress_ratios", fmt::format("has {} entries, expected {} (one per layer) or {} (and "
                                          "one per draft layer)",
                                          listed.size(), c.layers, c.layers + c.draft_layers));
    return;
  }
  if (extra > 0) c.draft_layers = extra;
  std::vector<int> ratios(listed.begin(), listed.begin() + c.layers);
  for (int ratio : ratios) {
    if (ratio > 0 && ratio < 4) {
      r.fail("compress_ratios", fmt::format("holds {}, expected 0, 4 or more than 4", ratio));
    }
  }
  std::set<int> distinct(ratios.begin(), ratios.end());
  distinct.erase(0);
  if (distinct.size() > kMaxCacheGroups) {
    r.fail("compress_ratios", fmt::format("holds {} different ratios, expected at most {}",
                                          distinct.size(), kMaxCacheGroups));
  }
  if (!c.compress_ratios.empty() && c.compress_ratios != ratios) {
    r.fail("compress_ratios", "and layer_types describe different layers");
  }
  c.compress_ratios = ratios;
}

void parse_indexer(ConfigReader& r, Config& c, bool needed) {
  auto absent = needed ? std::nullopt : std::optional<int64_t>(0);
  c.index_heads = r.integer("index_n_heads", needed, kMaxHeads, absent);
  c.index_dim = r.integer("index_head_dim", needed, kMaxRank, absent);
  c.index_topk = r.integer("index_topk", needed, kMaxContext, absent);
  if (!needed || r.failed()) return;
  if (!std::has_single_bit(static_cast<uint64_t>(c.index_dim))) {
    r.fail("index_head_dim", fmt::format("is {}, expected a power of two", c.index_dim));
  }
  if (c.index_dim < c.rope_dim) {
    r.fail("index_head_dim",
           fmt::format("is {}, expected at least qk_rope_head_dim = {}", c.index_dim, c.rope_dim));
  }
}

void parse_shape(ConfigReader& r, Config& c) {
  parse_tokens(r, c);
  c.hidden = r.integer("hidden_size", 1, kMaxWidth);
  c.layers = r.integer("num_hidden_layers", 1, kMaxLayers);
  c.draft_layers = r.integer("num_nextn_predict_layers", 0, kMaxDrafts, 0);
  c.heads = r.integer("num_attention_heads", 1, kMaxHeads);
  c.max_context = r.integer("max_position_embeddings", 1, kMaxContext);
  c.norm_eps = r.number("rms_norm_eps", 1e-30, 1);
}

void parse_v3(ConfigReader& r, Config& c) {
  bool sparse = c.family == Family::kV32;
  // V3.2's indexer reads the low-rank query, so there the rank must be given.
  c.q_rank =
      r.integer("q_lora_rank", 1, kMaxRank, sparse ? std::nullopt : std::optional<int64_t>(0));
  c.kv_rank = r.integer("kv_lora_rank", 1, kMaxRank);
  c.nope_dim = r.integer("qk_nope_head_dim", 1, kMaxRank);
  c.rope_dim = r.integer("qk_rope_head_dim", 2, kMaxRank);
  if (c.rope_dim % 2 != 0) {
    r.fail("qk_rope_head_dim", fmt::format("is {}, expected an even number", c.rope_dim));
  }
  c.v_dim = r.integer("v_head_dim", 1, kMaxRank);
  if (r.integer("num_key_value_heads", 1, kMaxHeads, c.heads) != c.heads) {
    r.fail("num_key_value_heads", fmt::format("must equal num_attention_heads = {}", c.heads));
  }
  c.latent_norm_eps = 1e-6;
  c.dense_inter = r.integer("intermediate_size", 1, kMaxWidth);
  parse_experts(r, c);
  require_text(r, "scoring_func", "sigmoid", {"sigmoid"});
  c.score = Config::Score::kSigmoid;
  if (r.has("mlp_layer_types")) {
    c.dense_layers = leading_run(r, "mlp_layer_types", c, "dense", "sparse");
    if (r.integer("first_k_dense_replace", 0, kMaxLayers, c.dense_layers) != c.dense_layers) {
      r.fail("first_k_dense_replace", "and mlp_layer_types describe different layers");
    }
  } else {
    c.dense_layers = std::min(r.integer("first_k_dense_replace", 0, kMaxLayers), c.layers);
  }
  c.router_groups = r.integer("n_group", 1, c.experts);
  c.kept_groups = r.integer("topk_group", 1, c.router_groups);
  if (r.failed()) return;
  int64_t group = c.experts / c.router_groups;
  if (c.experts % c.router_groups != 0) {
    r.fail("n_group", fmt::format("is {}, which does not divide n_routed_experts = {}",
                                  c.router_groups, c.experts));
  } else if (c.router_groups > 1 && group < 2) {
    r.fail("n_group", fmt::format("is {}, which leaves fewer than two of {} experts in a group",
                                  c.router_groups, c.experts));
  } else if (c.experts_per_token > c.kept_groups * group) {
    r.fail("num_experts_per_tok",
           fmt::format("is {}, but topk_group = {} keeps only {} experts", c.experts_per_token,
                       c.kept_groups, c.kept_groups * group));
  }
  parse_v3_rope(r, c);
  if (sparse) parse_indexer(r, c, true);
}

void parse_v4(ConfigReader& r, Config& c) {
  c.q_rank = r.integer("q_lora_rank", 1, kMaxRank);
  c.head_dim = r.integer("head_dim", 2, kMaxRank);
  parse_v4_rope_dim(r, c);
  if (r.integer("num_key_value_heads", 1, kMaxHeads, 1) != 1) {
    r.fail("num_key_value_heads", "must be 1");
  }
  c.o_rank = r.integer("o_lora_rank", 1, kMaxRank);
  c.o_groups = r.integer("o_groups", 1, kMaxHeads);
  if (!r.failed() && c.heads % c.o_groups != 0) {
    r.fail("o_groups", fmt::format("is {}, which does not divide num_attention_heads = {}",
                                   c.o_groups, c.heads));
  }
  c.window = r.integer("sliding_window", 1, kMaxContext);
  c.latent_norm_eps = c.norm_eps;
  c.draft_markov_rank = r.integer("dspark_markov_rank", 0, kMaxRank, 0);
  parse_ratios(r, c);
  parse_v4_rope(r, c);
  parse_experts(r, c);
  require_text(r, "scoring_func", "sqrtsoftplus", {"sqrtsoftplus", "sigmoid"});
  bool sigmoid = r.text("scoring_func", "sqrtsoftplus") == "sigmoid";
  c.score = sigmoid ? Config::Score::kSigmoid : Config::Score::kSqrtSoftplus;
  if (r.has("mlp_layer_types")) {
    c.hash_layers = leading_run(r, "mlp_layer_types", c, "hash_moe", "moe");
    if (r.integer("num_hash_layers", 0, kMaxLayers, c.hash_layers) != c.hash_layers) {
      r.fail("num_hash_layers", "and mlp_layer_types describe different layers");
    }
  } else {
    c.hash_layers = r.integer("num_hash_layers", 0, c.layers);
  }
  c.swiglu_limit = r.number("swiglu_limit", 0, 1e30);
  c.streams = r.integer("hc_mult", 1, 64);
  c.sinkhorn_iters = static_cast<int>(r.integer("hc_sinkhorn_iters", 1, 1000));
  c.hc_eps = r.number("hc_eps", 0, 1);
  bool indexed =
      std::find(c.compress_ratios.begin(), c.compress_ratios.end(), 4) != c.compress_ratios.end();
  parse_indexer(r, c, indexed);
}

}  // namespace

Result<Config> parse_config(const std::string& json_text, const std::string& path) {
  nlohmann::json root;
  try {
    root = nlohmann::json::parse(json_text);
  } catch (const nlohmann::json::parse_error& e) {
    return Error{fmt::format("{}: is not valid JSON at byte {}", path, e.byte)};
  } catch (const nlohmann::json::exception&) {
    return Error{path + ": holds a number that is out of range"};
  }
  if (!root.is_object()) return Error{path + ": expected a JSON object"};
  std::optional<Error> fault;
  ConfigReader r(root, path, "", fault);
  Config c;
  c.model_type = r.text("model_type");
  if (fault) return *fault;
  if (c.model_type == "deepseek_v3") {
    c.family = Family::kV3;
  } else if (c.model_type == "deepseek_v32") {
    c.family = Family::kV32;
  } else if (c.model_type == "deepseek_v4") {
    c.family = Family::kV4;
  } else {
    return Error{fmt::format(
        "{}: model_type \"{}\" is not supported; supported are deepseek_v3 (V3, R1, V3.1), "
        "deepseek_v32 (V3.2) and deepseek_v4 (V4)",
        path, c.model_type.substr(0, 60))};
  }
  require_plain_model(r);
  parse_shape(r, c);
  parse_quantization(r, c);
  if (!fault) c.family == Family::kV4 ? parse_v4(r, c) : parse_v3(r, c);
  if (fault) return *fault;
  c.router_experts = c.experts;
  c.shared_inter = c.shared_experts * c.moe_inter;
  return c;
}

}  // namespace hadal
