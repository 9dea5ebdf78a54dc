// Options of a model and loading it.
#include "model_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "base/file.h"
#include "base/log.h"
#include "kernels/dispatch/kernels.h"

namespace hadal {
namespace {

namespace fs = std::filesystem;

Status check_folder(const std::string& model) {
  std::error_code ignored;
  if (!fs::exists(model, ignored))
    return Error{fmt::format("there is no folder {}: give the folder of a checkpoint", model)};
  if (!fs::is_directory(model, ignored))
    return Error{
        fmt::format("{} is no folder: give the folder that holds config.json and the "
                    "safetensors files",
                    model)};
  return {};
}

}  // namespace

void ModelOptions::declare(Flags& flags) {
  flags.section("Model");
  flags.option("--device", device, "cpu, cuda, or cuda:N for card N");
  flags.choice("--numerics", numerics, {"release", "exact"},
               "What the released model computes, or fp32 activations without quantisation");
  flags.option("--threads", threads, "Threads (0: one for each core)");
  flags.option("--max-model-len", max_model_len,
               "Tokens of prompt and answer together (0: what the model was made for)");
  flags.flag("--enforce-eager", enforce_eager, "On a GPU: no captured graphs");
  flags.option("--without", without, "Name of a kernel that must not serve (hadal kernels)");
}

Result<std::unique_ptr<Engine>> open_engine(const ModelOptions& options, int sessions,
                                            int64_t step_tokens) {
  EngineOptions engine;
  engine.numerics = options.numerics == "exact" ? NumericsMode::kExact : NumericsMode::kRelease;
  engine.device = options.device;
  engine.threads = options.threads;
  engine.max_context = options.max_model_len;
  engine.max_sessions = sessions;
  engine.capture_decode = !options.enforce_eager;
  engine.without = options.without;
  if (step_tokens > 0) engine.max_step_tokens = step_tokens;
  if (options.threads < 0)
    return Error{fmt::format("--threads is {}: it must be 0 or more", options.threads)};
  if (options.max_model_len < 0)
    return Error{fmt::format("--max-model-len is {}: it must be 0 or more", options.max_model_len)};

  HADAL_TRY_STATUS(check_without(options.without));

  ProgressBar bar("loading", true);
  engine.progress = [&](int64_t done, int64_t total) { bar.update(done, total); };
  if (!options.dummy.config.empty()) return Engine::open_dummy(options.dummy, engine);
  HADAL_TRY_STATUS(check_folder(options.model));
  return Engine::open(options.model, engine);
}

Status check_without(const std::vector<std::string>& without) {
  if (without.empty()) return {};
  std::vector<KernelChoice> table = choose_kernels(detect_device()).table;
  for (const auto& name : without) {
    auto known = [&](const KernelChoice& k) { return k.candidate == name; };
    if (std::ranges::none_of(table, known))
      return Error{
          fmt::format("--without {}: there is no such kernel; hadal kernels lists them", name)};
  }
  return {};
}

Result<Tokenizer> open_tokenizer(const std::string& model) {
  HADAL_TRY_STATUS(check_folder(model));
  std::string file = (fs::path(model) / "tokenizer.json").string();
  std::error_code ignored;
  if (!fs::exists(file, ignored))
    return Error{
        fmt::format("{} has no tokenizer.json: text needs one; copy the file from the "
                    "release of this checkpoint",
                    model)};
  return Tokenizer::load(file);
}

Result<std::string> read_text(const std::string& path) {
  if (path != "-") return read_file(path);
  std::ostringstream text;
  text << std::cin.rdbuf();
  return text.str();
}

}  // namespace hadal
