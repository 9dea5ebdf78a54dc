// `hadal bench latency`: how fast one batch of equal sequences is read and continued, beside what
// the memory of this machine allows, measured in the same run.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "bandwidth.h"
#include "base/log.h"
#include "interrupt.h"
#include "model_options.h"
#include "verbs.h"

namespace hadal {
namespace {

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  size_t n = v.size();
  return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

struct Latency {
  std::vector<double> prefill;  // seconds of each repetition
  std::vector<double> decode;   // seconds of each step of all repetitions
};

class BenchVerb : public Verb {
 public:
  std::string name() const override { return "bench"; }
  std::string about() const override {
    return "Measure speed. `bench latency`: tokens/s of prefill and of decode for one batch, the\n"
           "bytes of weights that a decode step must read, and the share of the memory's read\n"
           "bandwidth that this is. --dummy takes random weights in the release formats.";
  }

  void declare(Flags& flags) override {
    flags.argument("BENCH", bench_, "latency");
    flags.optional_argument("MODEL", options_.model, "Folder of the checkpoint");
    flags.option("--dummy", options_.dummy.config,
                 "Random weights in place of MODEL: a config.json, or v4-flash, v4-pro, v3.2, v3");
    flags.option("--layers", options_.dummy.layers, "Of --dummy: its first layers alone");
    flags.option("--rank-slice", slice_, "Of --dummy: R/P, rank R of P, sums over ranks left out");
    flags.option("--prompt-len", prompt_, "Tokens of each prompt");
    flags.option("--output-len", output_, "Decode steps of each repetition");
    flags.option("--batch", batch_, "Sequences at once");
    flags.option("--repeat", repeat_, "Repetitions; medians are printed");
    flags.flag("--json", json_, "Print JSON");
    options_.declare(flags);
  }

  Result<int> run() override {
    HADAL_TRY_STATUS(check());
    int64_t length = prompt_ + output_;
    if (options_.max_model_len == 0) options_.max_model_len = length;
    int64_t step_tokens = std::max<int64_t>(EngineOptions().max_step_tokens, batch_);
    HADAL_TRY(auto engine, open_engine(options_, static_cast<int>(batch_), step_tokens));
    if (length > engine->info().max_context)
      return Error{
          fmt::format("--prompt-len {} and --output-len {} do not fit the context of {} "
                      "tokens: give less, or raise --max-model-len",
                      prompt_, output_, engine->info().max_context)};
    Latency latency;
    InterruptGuard interrupt;
    HADAL_TRY_STATUS(measure(*engine, interrupt, latency));
    if (interrupt.interrupted()) return kInterrupted;
    Bandwidth memory{engine->info().threads, engine->gpu_buffer_bytes(), 0};
    constexpr int kPasses = 5;
    if (memory.buffer_bytes > 0)
      memory.bytes_per_second = engine->measure_gpu_bandwidth(kPasses);
    else
      memory = measure_read_bandwidth(options_.threads, kPasses);
    report(engine->info(), latency, memory);
    return 0;
  }

 private:
  Status check() {
    if (!slice_.empty()) {
      char end = 0;
      if (std::sscanf(slice_.c_str(), "%d/%d%c", &options_.dummy.rank, &options_.dummy.ranks,
                      &end) != 2)
        return Error{fmt::format("--rank-slice {}: give R/P, as 0/2", slice_)};
    }
    if (bench_ != "latency")
      return Error{fmt::format("there is no bench '{}', only latency", bench_)};
    if (options_.model.empty() == options_.dummy.config.empty())
      return Error{"give either MODEL or --dummy CONFIG.json"};
    for (auto [name, value] : {std::pair{"--prompt-len", prompt_},
                               {"--output-len", output_},
                               {"--batch", batch_},
                               {"--repeat", repeat_}}) {
      if (value < 1 || value > (1 << 24))
        return Error{fmt::format("{} is {}: it must be between 1 and {}", name, value, 1 << 24)};
    }
    return {};
  }

  Status measure(Engine& engine, InterruptGuard& interrupt, Latency& latency) const {
    std::vector<std::unique_ptr<Session>> sessions;
    for (int64_t b = 0; b < batch_; ++b) {
      HADAL_TRY(auto session, engine.open_session());
      sessions.push_back(std::move(session));
    }
    // The first repetition touches the memory of caches and scratch for the first time: not
    // counted.
    for (int64_t r = 0; r <= repeat_ && !interrupt.interrupted(); ++r) {
      for (auto& session : sessions) HADAL_TRY_STATUS(session->rewind(0));
      Latency one;
      HADAL_TRY_STATUS(repeat(engine, sessions, interrupt, one));
      if (r == 0) continue;
      latency.prefill.push_back(one.prefill.front());
      latency.decode.insert(latency.decode.end(), one.decode.begin(), one.decode.end());
    }
    return {};
  }

  // Ids spread over the vocabulary, other ones in each sequence, so that a batch meets many
  // experts.
  static int32_t id_at(int64_t sequence, int64_t position, int64_t vocab) {
    return static_cast<int32_t>((sequence * 7919 + position * 104729 + 17) % vocab);
  }

  Status repeat(Engine& engine, std::span<const std::unique_ptr<Session>> sessions,
                InterruptGuard& interrupt, Latency& latency) const {
    using Clock = std::chrono::steady_clock;
    auto seconds = [](Clock::time_point start) {
      return std::chrono::duration<double>(Clock::now() - start).count();
    };
    int64_t vocab = engine.info().vocab, chunk = engine.info().max_step_tokens;
    std::vector<float> logits;
    std::vector<int32_t> ids(prompt_);
    auto start = Clock::now();
    for (int64_t b = 0; b < batch_; ++b) {
      for (int64_t i = 0; i < prompt_; ++i) ids[i] = id_at(b, i, vocab);
      for (int64_t done = 0, n; done < prompt_; done += n) {
        n = std::min(chunk, prompt_ - done);
        if (interrupt.interrupted()) return {};
        auto wanted = done + n == prompt_ ? StepInput::Logits::kLast : StepInput::Logits::kNone;
        StepInput input{sessions[b].get(), std::span(ids).subspan(done, n), wanted};
        HADAL_TRY_STATUS(engine.step({&input, 1}, logits));
      }
    }
    latency.prefill.push_back(seconds(start));

    ids.resize(batch_);
    std::vector<StepInput> inputs(batch_);
    for (int64_t i = 0; i < output_ && !interrupt.interrupted(); ++i) {
      for (int64_t b = 0; b < batch_; ++b) {
        ids[b] = id_at(b, prompt_ + i, vocab);
        inputs[b] = {sessions[b].get(), {&ids[b], 1}, StepInput::Logits::kLast};
      }
      start = Clock::now();
      HADAL_TRY_STATUS(engine.step(inputs, logits));
      latency.decode.push_back(seconds(start));
    }
    return {};
  }

  void report(const ModelInfo& model, const Latency& latency, const Bandwidth& memory) const {
    double prefill = median(latency.prefill), step = median(latency.decode);
    double prefill_rate = static_cast<double>(batch_ * prompt_) / prefill;
    double decode_rate = static_cast<double>(batch_) / step;
    double read = static_cast<double>(model.step_weight_bytes) / step;
    double share = read / memory.bytes_per_second;
    if (json_) {
      nlohmann::ordered_json out{
          {"model_type", model.model_type},
          {"model", options_.dummy.config.empty() ? options_.model : options_.dummy.config},
          {"device", model.device},
          {"numerics", options_.numerics},
          {"threads", memory.threads},
          {"prompt_len", prompt_},
          {"output_len", output_},
          {"batch", batch_},
          {"repeat", repeat_},
          {"weight_bytes", model.weight_bytes},
          {"prefill_tokens_per_s", prefill_rate},
          {"decode_tokens_per_s", decode_rate},
          {"decode_step_ms", step * 1e3},
          {"step_weight_bytes", model.step_weight_bytes},
          {"step_read_bytes_per_s", read},
          {"memory_read_bytes_per_s", memory.bytes_per_second},
          {"memory_buffer_bytes", memory.buffer_bytes},
          {"share_of_bandwidth", share}};
      fmt::print("{}\n", out.dump(2));
      return;
    }
    fmt::print("{} ({:.3f} GB of weights) on {}, {} numerics, batch {}, medians of {}\n",
               model.model_type, static_cast<double>(model.weight_bytes) * 1e-9, model.device,
               options_.numerics, batch_, repeat_);
    fmt::print("prefill  {:>10.1f} tokens/s  {} tokens in {:.1f} ms\n", prefill_rate,
               batch_ * prompt_, prefill * 1e3);
    fmt::print("decode   {:>10.1f} tokens/s  {:.3f} ms for a step\n", decode_rate, step * 1e3);
    fmt::print("reads    {:>10.3f} MB of weights for {}, {:.2f} GB/s\n",
               static_cast<double>(model.step_weight_bytes) * 1e-6,
               batch_ == 1 ? "a step" : "each sequence alone, at least", read * 1e-9);
    fmt::print("memory   {:>10.2f} GB/s read, best of 5 over {:.1f} GB\n",
               memory.bytes_per_second * 1e-9, static_cast<double>(memory.buffer_bytes) * 1e-9);
    fmt::print("share    {:>10.1f} % of the memory's bandwidth{}\n", share * 100,
               share > 1 ? ": the weights stay in the caches" : "");
  }

  ModelOptions options_;
  std::string bench_, slice_;
  int64_t prompt_ = 512, output_ = 64, batch_ = 1, repeat_ = 3;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Verb> bench_verb() { return std::make_unique<BenchVerb>(); }

}  // namespace hadal
