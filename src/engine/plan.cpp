// The sums behind `hadal plan`: the inventory of the config, cut as the header says.
#include "engine/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cache/layout.h"
#include "model/weights.h"

namespace hadal {
namespace {

constexpr int kSizes[] = {1, 2, 4, 8};
constexpr int64_t kStepTokens = 512;            // of a prefill chunk
constexpr int64_t kScoreBytes = 4 * (8 << 20);  // indexer scores held at once

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool contains_any(const std::string& name, std::initializer_list<const char*> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const char* p) { return name.find(p) != name.npos; });
}

enum class Split { kNone, kRows, kColumns, kById };

Split split_of(const Config& c, const TensorSpec& spec) {
  const std::string& n = spec.name;
  if (n.find(".experts.") != n.npos) return Split::kById;
  if (c.family == Family::kV4) {
    if (n == "embed.weight" || n == "head.weight") return Split::kRows;
    if (contains_any(n, {".attn.wq_b.", ".attn.wo_a.", ".attn.attn_sink", ".attn.indexer.wq_b.",
                         ".attn.indexer.weights_proj."})) {
      return Split::kRows;
    }
    return n.find(".attn.wo_b.") != n.npos ? Split::kColumns : Split::kNone;
  }
  if (n == "model.embed_tokens.weight" || n == "lm_head.weight") return Split::kRows;
  if (n.find(".indexer.") != n.npos) return Split::kNone;
  if (contains_any(n, {".q_b_proj.", ".q_proj.", ".kv_b_proj.", ".gate_proj.", ".up_proj."})) {
    return Split::kRows;
  }
  return contains_any(n, {".o_proj.", ".down_proj."}) ? Split::kColumns : Split::kNone;
}

// Bytes on the fullest device.
int64_t weight_bytes(const Config& c, const std::vector<TensorSpec>& specs, int64_t devices) {
  int64_t sum = 0, by_id = 0;
  for (const TensorSpec& spec : specs) {
    if (spec.draft) continue;
    std::vector<int64_t> shape = spec.shape;
    Split split = split_of(c, spec);
    if (split == Split::kRows) shape[0] = ceil_div(shape[0], devices);
    if (split == Split::kColumns) shape[1] = ceil_div(shape[1], devices);
    int64_t bytes = dtype_size(spec.dtypes[0]);
    for (int64_t d : shape) bytes *= d;
    (split == Split::kById ? by_id : sum) += bytes;
  }
  // All experts are of one size.
  return sum + by_id / c.experts * ceil_div(c.experts, devices);
}

std::vector<std::string> find_obstacles(const Config& c, int64_t devices) {
  std::vector<std::string> found;
  auto divide = [&](int64_t n, const char* what) {
    if (n % devices != 0) found.push_back(fmt::format("{} {}", n, what));
  };
  // A matrix that is cut along its columns is cut between the blocks of its scales.
  auto columns = [&](int64_t n, const char* what) {
    if (c.fp8 && n % devices == 0 && devices > 1 && n / devices % kFp8Block != 0) {
      found.push_back(fmt::format("{} columns of {} (in FP8 blocks of {})", n, what, kFp8Block));
    }
  };
  divide(c.heads, "heads");
  divide(c.vocab, "vocabulary rows");
  divide(c.experts, "experts");
  if (c.family == Family::kV4) {
    divide(c.o_groups, "output groups");
    if (c.index_heads > 0) divide(c.index_heads, "index heads");
    columns(c.o_groups * c.o_rank, "wo_b");
  } else {
    if (c.dense_layers > 0) divide(c.dense_inter, "rows of a dense MLP");
    divide(c.shared_experts * c.moe_inter, "rows of a shared expert");
    columns(c.heads * c.v_dim, "o_proj");
    if (c.dense_layers > 0) columns(c.dense_inter, "a dense down_proj");
    columns(c.shared_experts * c.moe_inter, "a shared down_proj");
  }
  return found;
}

int64_t cache_bytes(const CacheLayout& layout, int64_t context) {
  int64_t bytes = layout.slot_bytes();
  for (int g = 0; g < static_cast<int>(layout.groups.size()); ++g) {
    bytes += layout.pages_for(g, context) * layout.page_bytes(g);
  }
  return bytes;
}

// Attention's rows of one token, in bytes.
int64_t attention_row(const Config& c, int64_t heads) {
  bool v4 = c.family == Family::kV4;
  int64_t latent = c.kv_rank + c.rope_dim;
  int64_t values = v4 ? heads * 2 * c.head_dim + c.head_dim + c.o_groups * c.o_rank
                      : heads * (c.nope_dim + c.rope_dim + latent + c.kv_rank + c.v_dim) + latent;
  int64_t bytes = 2 * (values + c.q_rank);
  bytes += 2 * c.rope_dim * 4;                                         // angles
  bytes += c.q_rank + (v4 ? c.o_groups * c.o_rank : heads * c.v_dim);  // FP8 copies
  if (c.index_heads > 0) {
    bytes += c.index_heads * (2 * c.index_dim + 8) + 4 * c.index_topk;
  }
  if (v4 && !c.compress_ratios.empty()) bytes += 4 * 4 * 2 * c.head_dim;  // compressor u, g, ug
  return bytes;
}

int64_t scratch_bytes(const Config& c, int64_t devices, int64_t context, int64_t batch) {
  bool v4 = c.family == Family::kV4;
  int64_t t = std::min(std::max(kStepTokens, batch), batch * context);
  int64_t heads = ceil_div(c.heads, devices);
  int64_t mlp = c.shared_experts * c.moe_inter;
  if (!v4) mlp = ceil_div(std::max(c.dense_inter, mlp), devices);
  int64_t row = 2 * (c.streams + 4) * c.hidden;  // residual streams, inputs and outputs
  row += attention_row(c, heads);
  row += c.experts_per_token * (2 * (2 * c.moe_inter + c.hidden) + 20);  // routed experts
  row += 2 * (2 * mlp + c.hidden);                                       // shared or dense MLP
  row += c.experts_per_token * c.moe_inter + mlp + 2 * c.hidden;         // FP8 copies
  row += 4 * c.experts;                                                  // router logits
  row += 4 * (c.streams + c.streams * c.streams);                        // mHC mixes
  int64_t scores = 0;
  if (c.index_heads > 0) scores = std::min(kScoreBytes, 4 * t * (v4 ? context / 4 : context));
  int64_t head = batch * (2 * (c.streams + 1) * c.hidden + 4 * ceil_div(c.vocab, devices));
  return t * row + scores + head;
}

}  // namespace

const PlanRow& Plan::chosen() const {
  for (const PlanRow& row : rows) {
    if (row.devices == devices) return row;
  }
  return rows.front();
}

Result<Plan> make_plan(const Config& config, int devices, int64_t memory_bytes, int64_t context,
                       int64_t batch) {
  if (std::find(std::begin(kSizes), std::end(kSizes), devices) == std::end(kSizes)) {
    return Error{fmt::format("a plan for {} devices: give 1, 2, 4 or 8", devices)};
  }
  if (context < 1 || context > config.max_context) {
    return Error{fmt::format("a context of {} tokens: this model was made for 1 to {}", context,
                             config.max_context)};
  }
  constexpr int64_t kMaxBatch = 1 << 20;
  if (batch < 1 || batch > kMaxBatch) {
    return Error{fmt::format("a batch of {} sequences: give 1 to {}", batch, kMaxBatch)};
  }
  if (memory_bytes < 1) return Error{"a device needs more than 0 bytes of memory"};
  Plan plan;
  plan.model_type = config.model_type;
  plan.memory = memory_bytes;
  plan.context = context;
  plan.batch = batch;
  plan.devices = devices;
  std::vector<TensorSpec> specs = expected_tensors(config);
  int64_t per_sequence = cache_bytes(make_cache_layout(config, Numerics::release()), context);
  if (static_cast<double>(batch) * static_cast<double>(per_sequence) > 0x1p60) {
    return Error{fmt::format("{} sequences of {} tokens take more memory than any machine has",
                             batch, context)};
  }
  for (int n : kSizes) {
    PlanRow row;
    row.devices = n;
    row.obstacles = find_obstacles(config, n);
    row.weights = weight_bytes(config, specs, n);
    row.cache = batch * per_sequence;
    row.scratch = scratch_bytes(config, n, context, batch);
    row.max_batch = std::max<int64_t>(0, memory_bytes - row.weights - row.scratch) / per_sequence;
    if (!row.possible()) row.max_batch = 0;
    plan.rows.push_back(std::move(row));
  }
  return plan;
}

std::string to_text(const Plan& plan) {
  std::string text =
      fmt::format("{}, {} sequences of {} tokens, {} on each device\n\n", plan.model_type,
                  plan.batch, show_integer(plan.context), show_bytes(plan.memory));
  text += fmt::format("{:>9}{:>12}{:>12}{:>12}{:>12}  {}\n", "devices", "weights", "cache",
                      "scratch", "of each", "fits");
  const PlanRow* smallest = nullptr;
  for (const PlanRow& row : plan.rows) {
    std::string verdict =
        plan.fits(row)   ? fmt::format("yes, up to {} sequences", row.max_batch)
        : row.possible() ? "no"
                         : fmt::format("cannot be divided: {}", fmt::join(row.obstacles, ", "));
    text += fmt::format("{:>9}{:>12}{:>12}{:>12}{:>12}  {}\n",
                        fmt::format("{}{}", row.devices == plan.devices ? "> " : "", row.devices),
                        show_bytes(row.weights), show_bytes(row.cache), show_bytes(row.scratch),
                        show_bytes(row.total()), verdict);
    if (!smallest && plan.fits(row)) smallest = &row;
  }
  const PlanRow& chosen = plan.chosen();
  text += "\n";
  if (plan.fits(chosen)) {
    text += fmt::format("It fits on {} device(s), {} of each stay free.\n", chosen.devices,
                        show_bytes(plan.memory - chosen.total()));
  } else if (smallest) {
    text += fmt::format("It does not fit on {} device(s); it does on {}.\n", chosen.devices,
                        smallest->devices);
  } else {
    text += fmt::format("It does not fit on {} device(s), nor on 1, 2, 4 or 8 of them.\n",
                        chosen.devices);
  }
  return text;
}

std::string to_json(const Plan& plan) {
  using Json = nlohmann::ordered_json;
  Json rows = Json::array();
  for (const PlanRow& row : plan.rows) {
    rows.push_back({{"devices", row.devices},
                    {"weights", row.weights},
                    {"cache", row.cache},
                    {"scratch", row.scratch},
                    {"total", row.total()},
                    {"obstacles", row.obstacles},
                    {"fits", plan.fits(row)},
                    {"max_batch", row.max_batch}});
  }
  Json root = {{"model_type", plan.model_type},
               {"memory", plan.memory},
               {"context", plan.context},
               {"batch", plan.batch},
               {"devices", plan.devices},
               {"fits", plan.fits(plan.chosen())},
               {"rows", rows}};
  return root.dump(2) + "\n";
}

}  // namespace hadal
