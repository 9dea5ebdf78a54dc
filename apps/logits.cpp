// `hadal logits MODEL --ids FILE --out FILE`: the logits of a list of token ids, for comparing with
// another implementation. docs: `hadal logits --help`.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/log.h"
#include "base/safetensors.h"
#include "model_options.h"
#include "verbs.h"

namespace hadal {
namespace {

// A JSON list of whole numbers, or an object with such a list as "ids".
Result<std::vector<int32_t>> read_ids(const std::string& path) {
  HADAL_TRY(std::string text, read_text(path));
  auto json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_object() && json.contains("ids")) json = nlohmann::json(json["ids"]);
  if (!json.is_array())
    return Error{fmt::format("{} must hold a JSON list of token ids, such as [0, 17, 4]", path)};
  std::vector<int32_t> ids;
  for (const auto& v : json) {
    constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
    bool whole = v.is_number_unsigned() && v.get<uint64_t>() <= kMax;
    if (!whole)
      return Error{fmt::format("{}: entry {} is {}, not a token id: a whole number from 0 on", path,
                               ids.size(),
                               v.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace))};
    ids.push_back(v.get<int32_t>());
  }
  if (ids.empty()) return Error{fmt::format("{} holds no token ids: give at least one", path)};
  return ids;
}

int32_t argmax(std::span<const float> row) {
  return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

class LogitsVerb : public Verb {
 public:
  std::string name() const override { return "logits"; }
  std::string about() const override {
    return "Write the logits of a list of token ids, to compare with another implementation.\n"
           "The file gets `logits` [T, V] f32, one row for each of the T ids: row t is what the\n"
           "model expects after ids 0..t. With --greedy N also `greedy_ids` [N] i32, the ids that\n"
           "argmax appends (the lower id wins ties), and `greedy_logits` [N, V] f32, the row that\n"
           "each was the argmax of.";
  }

  void declare(Flags& flags) override {
    flags.argument("MODEL", options_.model, "Folder of the checkpoint");
    flags.option("--ids", ids_file_, "JSON list of token ids ('-': standard input)");
    flags.require("--ids");
    flags.option("--out", out_file_, "The safetensors file to write");
    flags.require("--out");
    flags.option("--greedy", greedy_, "Append N tokens by argmax");
    flags.option("--chunk", chunk_, "Feed the prompt in chunks of N tokens (not given: 512)");
    flags.option("--decode-from", decode_from_,
                 "Feed the first K ids as prompt and the rest one at a time (not given: all)");
    options_.declare(flags);
  }

  Result<int> run() override {
    HADAL_TRY(std::vector<int32_t> ids, read_ids(ids_file_));
    HADAL_TRY_STATUS(check(static_cast<int64_t>(ids.size())));
    HADAL_TRY(auto engine, open_engine(options_, 1, chunk_.value_or(0)));
    HADAL_TRY(auto session, engine->open_session());
    const ModelInfo& model = engine->info();
    auto length = static_cast<int64_t>(ids.size());
    if (length + std::max<int64_t>(greedy_ - 1, 0) > model.max_context)
      return Error{
          fmt::format("{} ids and {} greedy tokens do not fit the context of {} tokens: "
                      "give fewer, or raise --max-model-len",
                      length, greedy_, model.max_context)};

    // Rows of the ids, then those behind each greedy token (the first is the last id's row).
    std::vector<float> rows;
    HADAL_TRY_STATUS(feed(*engine, *session, ids, rows));
    std::vector<float> greedy_rows;
    std::vector<int32_t> greedy_ids;
    HADAL_TRY_STATUS(continue_greedily(*engine, *session, rows, greedy_ids, greedy_rows));

    int64_t v = model.vocab;
    std::vector<std::pair<std::string, Tensor>> tensors;
    if (greedy_ > 0) {
      tensors.emplace_back("greedy_ids", Tensor(greedy_ids.data(), DType::kI32, {greedy_}));
      tensors.emplace_back("greedy_logits", Tensor(greedy_rows.data(), DType::kF32, {greedy_, v}));
    }
    tensors.emplace_back("logits", Tensor(rows.data(), DType::kF32, {length, v}));
    HADAL_TRY_STATUS(write_safetensors(out_file_, tensors));
    log_info(fmt::format("wrote logits [{}, {}] to {}", length, v, out_file_));
    return 0;
  }

 private:
  Status check(int64_t length) const {
    if (greedy_ < 0) return Error{fmt::format("--greedy is {}: it must be 0 or more", greedy_)};
    if (chunk_ && *chunk_ < 1)
      return Error{fmt::format("--chunk is {}: it must be 1 or more", *chunk_)};
    if (decode_from_ && (*decode_from_ < 0 || *decode_from_ > length))
      return Error{
          fmt::format("--decode-from is {}: it must be between 0 and {}, the number of ids",
                      *decode_from_, length)};
    return {};
  }

  Status feed(Engine& engine, Session& session, std::span<const int32_t> ids,
              std::vector<float>& rows) const {
    auto length = static_cast<int64_t>(ids.size());
    int64_t prompt = decode_from_.value_or(length), chunk = engine.info().max_step_tokens;
    if (chunk_) chunk = std::min(chunk, *chunk_);
    std::vector<float> step_rows;
    rows.reserve(ids.size() * static_cast<size_t>(engine.info().vocab));
    for (int64_t done = 0, n; done < length; done += n) {
      n = done < prompt ? std::min(chunk, prompt - done) : 1;
      StepInput input{&session, ids.subspan(done, n), StepInput::Logits::kAll};
      HADAL_TRY_STATUS(engine.step({&input, 1}, step_rows));
      rows.insert(rows.end(), step_rows.begin(), step_rows.end());
    }
    return {};
  }

  Status continue_greedily(Engine& engine, Session& session, std::span<const float> rows,
                           std::vector<int32_t>& ids, std::vector<float>& ids_rows) const {
    auto v = static_cast<size_t>(engine.info().vocab);
    std::vector<float> last(rows.end() - static_cast<int64_t>(v), rows.end());
    for (int64_t i = 0; i < greedy_; ++i) {
      if (i > 0) {
        StepInput input{&session, {&ids.back(), 1}, StepInput::Logits::kLast};
        HADAL_TRY_STATUS(engine.step({&input, 1}, last));
      }
      ids.push_back(argmax(last));
      ids_rows.insert(ids_rows.end(), last.begin(), last.end());
    }
    return {};
  }

  ModelOptions options_;
  std::string ids_file_, out_file_;
  int64_t greedy_ = 0;
  std::optional<int64_t> chunk_, decode_from_;
};

}  // namespace

std::unique_ptr<Verb> logits_verb() { return std::make_unique<LogitsVerb>(); }

}  // namespace hadal
