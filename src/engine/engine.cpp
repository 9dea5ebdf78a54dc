// The loaded model behind Engine and Session: opening, sessions, and step(), which checks, builds
// the plain arrays, runs forward() and advances the sequences.
#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "base/safetensors.h"
#include "cache/sequence.h"
#include "engine/gpu_runner.h"
#include "engine/step_builder.h"
#include "hadal.h"
#include "kernels/dispatch/kernels.h"
#include "kernels/gpu/open_gpu.h"
#include "model/dummy.h"
#include "model/model.h"
#include "model/released.h"
#include "model/slice.h"

namespace hadal {

struct Engine::Impl {
  ModelInfo info;
  EngineOptions options;
  ThreadPool threads;
  Device device;
  std::unique_ptr<Gpu> gpu;  // null: the CPU runs the model; outlives all that lies on it
  Kernels kernels;
  std::unique_ptr<TensorSource> source;
  std::unique_ptr<Model> model;
  CacheLayout layout;
  std::unique_ptr<CachePool> pool;
  std::unique_ptr<StepBuilder> builder;
  Arena arena;  // of the GPU: the ops' workspace
  Context context;
  std::unique_ptr<GpuRunner> runner;  // of the GPU
  int open_sessions = 0;

  Impl(const EngineOptions& o, OpenedDevice opened)
      : options(o),
        threads(o.threads),
        device(std::move(opened.device)),
        gpu(std::move(opened.gpu)),
        kernels(choose_kernels(device, o.without)),
        arena(gpu.get()),
        context{threads, kernels,  device.portable, device.tuned, gpu ? gpu->stream() : nullptr,
                {},      gpu.get()} {}

  static Result<std::unique_ptr<Impl>> make(const EngineOptions& o);
  Status load(const Config& config, const std::string& path);
  Status check_memory(const Config& config, const Numerics& numerics, const ModelLimits& limits,
                      const std::vector<int64_t>& pages) const;
  Status check(std::span<const StepInput> inputs) const;
  // forward() on what the builder holds; the wanted logits, [n, V].
  void run(std::vector<float>& logits);
};

struct Session::Impl {
  Engine::Impl& engine;
  Sequence sequence;

  explicit Impl(Engine::Impl& e) : engine(e), sequence(*e.pool) { ++engine.open_sessions; }
  ~Impl() { --engine.open_sessions; }
};

namespace {

Numerics numerics_of(NumericsMode mode) {
  return mode == NumericsMode::kExact ? Numerics::exact() : Numerics::release();
}

Status check_options(const EngineOptions& o, const Config& config) {
  if (o.max_step_tokens < 1)
    return Error{fmt::format("a step of {} tokens: give at least 1", o.max_step_tokens)};
  if (o.max_sessions < 1) return Error{fmt::format("{} sessions: give at least 1", o.max_sessions)};
  if (o.max_context < 0 || o.max_context > config.max_context)
    return Error{fmt::format("a context of {} tokens: this model was made for 1 to {}",
                             o.max_context, config.max_context)};
  return {};
}

// The shapes that `model` asks for.
Result<Config> dummy_config(const DummyModel& model) {
  std::string path = model.config, text;
  if (auto released = released_config(path)) {
    text = *released;
  } else {
    auto file = read_file(path);
    if (!file.ok())
      return Error{file.error().message + " (or give one of " + released_names() + ")"};
    text = std::move(file).value();
  }
  HADAL_TRY(Config config, parse_config(text, path));
  if (model.layers < 0 || model.layers > config.layers)
    return Error{fmt::format("--layers {}: {} has {} layers", model.layers, path, config.layers)};
  if (model.layers > 0) {
    config.layers = model.layers;
    if (config.family == Family::kV4) config.compress_ratios.resize(model.layers);
    config.dense_layers = std::min(config.dense_layers, model.layers);
    config.hash_layers = std::min(config.hash_layers, model.layers);
    config.draft_layers = 0;
  }
  return rank_slice(config, model.rank, model.ranks);
}

// Sum of the stored bytes, and where they are.
int64_t weight_bytes(const TensorSource& source) {
  int64_t n = 0;
  for (const auto& name : source.names())
    if (auto t = source.find(name)) n += t->bytes();
  return n;
}

}  // namespace

Result<std::unique_ptr<Engine::Impl>> Engine::Impl::make(const EngineOptions& o) {
  HADAL_TRY(OpenedDevice opened, open_device(o.device));
  auto impl = std::make_unique<Impl>(o, std::move(opened));
  if (!impl->kernels.fault.empty()) return Error{impl->kernels.fault};
  return impl;
}

Status Engine::Impl::check_memory(const Config& config, const Numerics& numerics,
                                  const ModelLimits& limits,
                                  const std::vector<int64_t>& pages) const {
  int64_t weights = weight_bytes(*source), scratch = model_scratch_bytes(config, numerics, limits);
  scratch += limits.max_logit_rows * config.vocab * dtype_size(DType::kF32);
  scratch += workspace_bytes(device, workspace_shapes(config, limits));
  int64_t cache = (options.max_sessions + 1) * layout.slot_bytes();
  for (size_t g = 0; g < pages.size(); ++g)
    cache += pages[g] * layout.page_bytes(static_cast<int>(g));
  int64_t need = weights + scratch + cache, free = gpu->memory_bytes();
  if (need <= free) return {};
  return Error{fmt::format(
      "{:.1f} GB are needed (weights {:.1f}, caches {:.1f}, scratch {:.1f}), {} has {:.1f} GB "
      "free: lower --max-model-len or take a smaller model",
      need * 1e-9, weights * 1e-9, cache * 1e-9, scratch * 1e-9, device.name, free * 1e-9)};
}

Status Engine::Impl::load(const Config& config, const std::string& path) {
  HADAL_TRY_STATUS(check_options(options, config));
  ModelLimits limits;
  limits.max_context = options.max_context ? options.max_context : config.max_context;
  limits.max_rows = std::min(options.max_step_tokens, limits.max_context * options.max_sessions);
  limits.max_logit_rows = limits.max_rows;
  Numerics numerics = numerics_of(options.numerics);
  layout = make_cache_layout(config, numerics);
  // On a GPU one more slot and page, for rows that pad a step.
  int64_t slots = options.max_sessions + (gpu ? 1 : 0);
  std::vector<int64_t> pages;
  for (int g = 0; g < static_cast<int>(layout.groups.size()); ++g)
    pages.push_back(options.max_sessions * layout.pages_for(g, limits.max_context) +
                    (gpu ? layout.pages_for(g, 1) : 0));
  if (gpu) HADAL_TRY_STATUS(check_memory(config, numerics, limits, pages));
  HADAL_TRY(model, make_model(config, *source, numerics, limits,
                              gpu ? options.progress : Progress{}, gpu.get()));
  pool = std::make_unique<CachePool>(layout, slots, pages, gpu.get());
  builder = std::make_unique<StepBuilder>(layout, limits.max_rows, options.max_sessions,
                                          limits.max_context);
  int64_t workspace = workspace_bytes(device, workspace_shapes(config, limits));
  if (workspace > 0) context.workspace = arena.make(DType::kI8, {workspace});
  if (gpu)
    runner = std::make_unique<GpuRunner>(
        *gpu, *model, *pool, context, limits, config.vocab,
        GpuRunner::Options{options.max_sessions, options.capture_decode});
  info.threads = threads.size();
  info.device = device.name;
  info.model_type = config.model_type;
  info.path = path;
  info.vocab = config.vocab;
  info.max_context = limits.max_context;
  info.max_step_tokens = limits.max_rows;
  info.weight_bytes = weight_bytes(*source);
  info.step_weight_bytes = model->step_weight_bytes();
  info.bos_id = config.bos_id;
  info.eos_ids = config.eos_ids;
  if (gpu) source.reset();  // all of it has been copied
  return {};
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;
const ModelInfo& Engine::info() const { return impl_->info; }

Result<std::unique_ptr<Engine>> Engine::open(const std::string& path,
                                             const EngineOptions& options) {
  HADAL_TRY(auto impl, Impl::make(options));
  std::string config_path = path + "/config.json";
  HADAL_TRY(std::string text, read_file(config_path));
  HADAL_TRY(Config config, parse_config(text, config_path));
  HADAL_TRY(auto checkpoint, Checkpoint::open(path));
  const Checkpoint& files = *checkpoint;
  impl->source = std::move(checkpoint);
  HADAL_TRY_STATUS(impl->load(config, path));
  if (!impl->gpu) HADAL_TRY_STATUS(files.preload(options.progress));
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Result<std::unique_ptr<Engine>> Engine::open_dummy(const DummyModel& model,
                                                   const EngineOptions& options) {
  constexpr uint64_t kSeed = 1;
  HADAL_TRY(auto impl, Impl::make(options));
  HADAL_TRY(Config config, dummy_config(model));
  if (impl->gpu) {
    HADAL_TRY(impl->source, DummySource::make_overlapping(config, kSeed, impl->threads));
  } else {
    HADAL_TRY(impl->source, DummySource::make(config, kSeed, impl->threads, options.progress));
  }
  HADAL_TRY_STATUS(impl->load(config, "dummy"));
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

int64_t Engine::gpu_buffer_bytes() const {
  constexpr int64_t kMost = int64_t{4} << 30;  // many times a GPU's cache
  return std::min(impl_->model->weights_memory().bytes(), kMost);
}

double Engine::measure_gpu_bandwidth(int passes) {
  if (!impl_->gpu) return 0;
  double best = 0;
  for (int i = 0; i < passes; ++i)
    best = std::max(
        best, static_cast<double>(gpu_buffer_bytes()) /
                  impl_->gpu->time_read(impl_->model->weights_memory().data(), gpu_buffer_bytes()));
  return best;
}

Result<std::unique_ptr<Session>> Engine::open_session() {
  if (impl_->open_sessions >= impl_->options.max_sessions)
    return Error{fmt::format("all {} sessions are open: close one, or open the engine for more",
                             impl_->options.max_sessions)};
  return std::make_unique<Session>(std::make_unique<Session::Impl>(*impl_));
}

Status Engine::Impl::check(std::span<const StepInput> inputs) const {
  int64_t rows = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const StepInput& in = inputs[i];
    HADAL_CHECK(in.session && &in.session->impl().engine == this, "a session of this engine");
    for (size_t j = 0; j < i; ++j)
      HADAL_CHECK(inputs[j].session != in.session, "a session once per step");
    auto n = static_cast<int64_t>(in.ids.size());
    int64_t held = in.session->length();
    rows += n;
    if (n == 0) return Error{"a step needs at least one token of each of its sessions"};
    if (held + n > info.max_context)
      return Error{fmt::format("{} tokens after {} do not fit the context of {}", n, held,
                               info.max_context)};
    for (int32_t id : in.ids)
      if (id < 0 || id >= info.vocab)
        return Error{fmt::format("token id {} is not in the vocabulary of {}", id, info.vocab)};
  }
  if (rows > info.max_step_tokens)
    return Error{fmt::format("a step of {} tokens: this engine takes at most {} at once", rows,
                             info.max_step_tokens)};
  return {};
}

void Engine::Impl::run(std::vector<float>& logits) {
  if (runner) return runner->run(*builder, logits);
  Step step = builder->step(pool->layers());
  logits.resize(static_cast<size_t>(step.logit_count * info.vocab));
  model->forward(context, step, {logits.data(), DType::kF32, {step.logit_count, info.vocab}});
}

Status Engine::step(std::span<const StepInput> inputs, std::vector<float>& logits) {
  HADAL_TRY_STATUS(impl_->check(inputs));
  for (const StepInput& in : inputs)
    HADAL_CHECK(in.session->impl().sequence.reserve(static_cast<int64_t>(in.ids.size())),
                "the pool holds max_context tokens for each session");
  impl_->builder->clear();
  for (const StepInput& in : inputs) {
    int64_t wanted = in.logits == StepInput::Logits::kAll    ? static_cast<int64_t>(in.ids.size())
                     : in.logits == StepInput::Logits::kLast ? 1
                                                             : 0;
    impl_->builder->add(in.session->impl().sequence, in.ids, wanted);
  }
  impl_->run(logits);
  for (const StepInput& in : inputs)
    in.session->impl().sequence.advance(static_cast<int64_t>(in.ids.size()));
  return {};
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;
int64_t Session::length() const { return impl_->sequence.length(); }

Status Session::rewind(int64_t length) {
  int64_t held = impl_->sequence.length();
  if (length < 0 || length > held)
    return Error{fmt::format("rewind to {} of {} tokens: give 0 to {}", length, held, held)};
  if (!impl_->sequence.can_rewind(length))
    return Error{
        fmt::format("rewind from {} to {} tokens: the caches can take back the last {} "
                    "tokens, or all of them",
                    held, length, kMaxRewind)};
  impl_->sequence.rewind(length);
  return {};
}

}  // namespace hadal
