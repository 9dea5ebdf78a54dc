// A ModelReport as a table and as JSON.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/quantity.h"
#include "model/inspect.h"

namespace hadal {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kShort = 131072, kLong = 1048576;  // the contexts of the cache table

std::string list(const std::vector<ModelReport::Count>& counts) {
  std::string text;
  for (const auto& [name, n] : counts) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", n, name);
  }
  return text;
}

std::string draft_text(const ModelReport& r) {
  if (r.config.draft_layers == 0) return "none";
  return fmt::format("{} {}, {} parameters (recognised, not run)", r.config.draft_layers,
                     r.config.draft_markov_rank > 0 ? "DSpark stages" : "MTP layer(s)",
                     show_count(r.draft_parameters));
}

std::string files_text(const ModelReport& r) {
  if (r.files.empty() && r.missing_files.empty()) {
    return fmt::format("none here; the released format takes {} tensors, {}",
                       show_integer(r.expected_tensors), show_bytes(r.expected_bytes));
  }
  std::string text = fmt::format(
      "{} of {} files, {} tensors, {}", r.files.size(), r.files.size() + r.missing_files.size(),
      show_integer(static_cast<int64_t>(r.tensors.size())), show_bytes(r.bytes));
  for (const auto& [dtype, bytes] : r.bytes_by_dtype) {
    text += fmt::format("\n{:16}{:8} {:>12}", "", dtype, show_bytes(bytes));
  }
  return text;
}

void add_cache(const ModelReport& r, std::string& text) {
  text += fmt::format("\n  {:30} {:>14} {:>15} {:>17} {:>15}\n", "cache of one sequence",
                      "bytes/token", "131,072 tokens", "1,048,576 tokens", "and always");
  for (const auto& c : r.cache) {
    text += fmt::format("  {:30} {:>14} {:>11.2f} GiB {:>13.2f} GiB {:>11.2f} MiB\n", c.format,
                        fmt::format("{:.8g}", c.bytes_per_token), c.bytes_at(kShort) / 0x1p30,
                        c.bytes_at(kLong) / 0x1p30, static_cast<double>(c.bytes_fixed) / 0x1p20);
  }
}

void add_missing(const ModelReport& r, std::string& text) {
  if (!r.missing_files.empty()) {
    text += fmt::format("\n  {} files are missing ({} tensors):\n", r.missing_files.size(),
                        show_integer(r.missing_tensors));
    for (const auto& file : r.missing_files) text += "    " + file + "\n";
  }
  for (const auto& problem : r.problems) text += "\n  problem: " + problem + "\n";
}

Json tensor_json(const ModelReport& r, const StoredTensor& t) {
  return {{"name", t.name},
          {"dtype", dtype_name(t.dtype)},
          {"shape", std::vector<int64_t>(t.shape.begin(), t.shape.begin() + t.rank)},
          {"bytes", t.bytes()},
          {"file", r.files[t.file]}};
}

Json counts_json(const std::vector<ModelReport::Count>& counts) {
  Json object = Json::object();
  for (const auto& [name, n] : counts) object[name] = n;
  return object;
}

}  // namespace

std::string to_text(const ModelReport& r, bool tensors) {
  const Config& c = r.config;
  std::string text = r.location + "\n";
  auto line = [&](const char* key, const std::string& value) {
    text += fmt::format("  {:13} {}\n", key, value);
  };
  line("model", fmt::format("{}, {} layers, hidden {}, {} heads, vocabulary {}, context {}",
                            c.model_type, c.layers, c.hidden, c.heads, show_integer(c.vocab),
                            show_integer(c.max_context)));
  line("attention", list(r.attention_layers));
  line("feed-forward",
       fmt::format("{}; {} experts, {} per token, {} shared", list(r.feed_forward_layers),
                   c.experts, c.experts_per_token, c.shared_experts));
  line("parameters", fmt::format("{} total, {} active per token (embedding and head counted)",
                                 show_count(r.parameters), show_count(r.active_parameters)));
  line("draft module", draft_text(r));
  line("quantisation", r.quantisation);
  line("files", files_text(r));
  add_cache(r, text);
  add_missing(r, text);
  if (tensors) {
    text += "\n";
    for (const auto& t : r.tensors) {
      text += fmt::format("  {} {} {}\n", t.name, t.view(nullptr).describe(),
                          r.files[t.file].substr(r.files[t.file].rfind('/') + 1));
    }
  }
  return text;
}

std::string to_json(const ModelReport& r, bool tensors) {
  const Config& c = r.config;
  Json cache = Json::array();
  for (const auto& k : r.cache) {
    cache.push_back({{"format", k.format},
                     {"bytes_per_token", k.bytes_per_token},
                     {"bytes_at_131072", k.bytes_at(kShort)},
                     {"bytes_at_1048576", k.bytes_at(kLong)},
                     {"bytes_fixed", k.bytes_fixed}});
  }
  Json root = {{"location", r.location},
               {"model_type", c.model_type},
               {"layers", c.layers},
               {"draft_layers", c.draft_layers},
               {"hidden", c.hidden},
               {"heads", c.heads},
               {"vocabulary", c.vocab},
               {"max_context", c.max_context},
               {"attention_layers", counts_json(r.attention_layers)},
               {"feed_forward_layers", counts_json(r.feed_forward_layers)},
               {"experts", c.experts},
               {"experts_per_token", c.experts_per_token},
               {"shared_experts", c.shared_experts},
               {"parameters", r.parameters},
               {"active_parameters", r.active_parameters},
               {"draft_parameters", r.draft_parameters},
               {"quantisation", r.quantisation},
               {"expected_tensors", r.expected_tensors},
               {"expected_bytes", r.expected_bytes},
               {"files", r.files},
               {"missing_files", r.missing_files},
               {"missing_tensors", r.missing_tensors},
               {"tensors_here", r.tensors.size()},
               {"bytes", r.bytes},
               {"bytes_by_dtype", counts_json(r.bytes_by_dtype)},
               {"cache", cache},
               {"problems", r.problems}};
  if (tensors) {
    root["tensors"] = Json::array();
    for (const auto& t : r.tensors) root["tensors"].push_back(tensor_json(r, t));
  }
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace hadal
