// The boundary between the engine and everything that uses it: an Engine (a loaded model) and
// Sessions (one sequence each, with its caches). Front ends see token ids and logits, no tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace hadal {

enum class NumericsMode {
  kRelease,  // what the released model computes: bf16 activations, FP8 activation quantisation,
             // FP8 cache values, Hadamard and FP4 (V4) or FP8 (V3.2) in the indexer
  kExact,    // fp32 activations, nothing quantised but the weights
};

struct EngineOptions {
  std::string device = "cpu";  // or "cuda", "cuda:N"
  NumericsMode numerics = NumericsMode::kRelease;
  int threads = 0;                   // 0 = one for each core this process may use
  int64_t max_context = 0;           // tokens of one session; 0 = what the model was made for
  int64_t max_step_tokens = 512;     // tokens of one step over all sessions: the prefill chunk
  int max_sessions = 1;              // sessions that may be open at once
  bool capture_decode = true;        // on a GPU: decode steps as captured graphs
  std::vector<std::string> without;  // names of kernel candidates that must not serve
  // Called while weights are bound and read: bytes done, bytes in all. May be empty.
  std::function<void(int64_t done, int64_t total)> progress;
};

// A model of random weights: a config.json, or one of the released shapes by name (v4-flash,
// v4-pro, v3.2, v3), cut to its first layers and to one rank's slice of a tensor-parallel group. Of
// a slice the sums over ranks are left out: it is for timing.
struct DummyModel {
  std::string config;  // a path or a name
  int64_t layers = 0;  // 0: all
  int rank = 0, ranks = 1;
};

struct ModelInfo {
  std::string model_type;         // "deepseek_v3", "deepseek_v32", "deepseek_v4"
  std::string path;               // folder of the checkpoint, or "dummy"
  int threads = 0;                // of the host
  std::string device;             // what runs it: "cpu (avx512_bf16)", "cuda:0 (NVIDIA H200)"
  int64_t vocab = 0;              // V
  int64_t max_context = 0;        // of a session, as opened
  int64_t max_step_tokens = 0;    // of a step, as opened
  int64_t weight_bytes = 0;       // as stored
  int64_t step_weight_bytes = 0;  // bytes of weights that one decoded token must read
  int64_t bos_id = 0;
  std::vector<int64_t> eos_ids;
};

struct SamplingParams {
  float temperature = 1.0f;                                 // 0 = argmax
  int top_k = 0;                                            // 0 = all
  float top_p = 1.0f;                                       // 0 = the single best
  float min_p = 0.0f;                                       // of the best token's probability
  float presence_penalty = 0.0f, frequency_penalty = 0.0f;  // on generated tokens, as OpenAI's
  float repetition_penalty = 1.0f;  // on prompt and generated tokens, as transformers'
  uint64_t seed = 0;                // same seed, same ids, same logits -> same token
  int max_tokens = 512;
  bool ignore_eos = false;
  int logprobs = -1;  // -1 = none, n = the chosen token and the n best
};

struct TokenLogprob {
  int32_t id;
  float logprob;  // natural log, of the unmodified distribution
};

struct GeneratedToken {
  int32_t id;
  float logprob = 0;              // where params.logprobs >= 0
  std::vector<TokenLogprob> top;  // params.logprobs of them, best first
};

enum class FinishReason { kStop, kLength, kContext, kCancelled };

struct Generation {
  std::vector<int32_t> ids;  // the generated tokens, the end token included
  FinishReason reason = FinishReason::kStop;
  int64_t prompt_tokens = 0;  // all before the first generated one
  int64_t cached_tokens = 0;  // of these, held by the session when the call began
  double prefill_seconds = 0, decode_seconds = 0;
};

class Session;

// One session's part of a step.
struct StepInput {
  Session* session = nullptr;
  std::span<const int32_t> ids;  // new tokens, at least one, each in [0, vocab)
  enum class Logits { kNone, kLast, kAll } logits = Logits::kLast;
};

class Engine {
 public:
  // Loads the checkpoint folder (config.json, model.safetensors or an index with shards).
  static Result<std::unique_ptr<Engine>> open(const std::string& path,
                                              const EngineOptions& options);
  // Random weights in the release formats, without a checkpoint.
  static Result<std::unique_ptr<Engine>> open_dummy(const DummyModel& model,
                                                    const EngineOptions& options);
  ~Engine();

  const ModelInfo& info() const;
  // A new empty sequence. Error when max_sessions are open. Must be destroyed before the engine.
  Result<std::unique_ptr<Session>> open_session();

  // Runs the new tokens of one or several sessions in one forward pass and advances them.
  // `logits` becomes [n, vocab] f32 row-major, the rows asked for in input order. Errors (unknown
  // id, context full, more than max_step_tokens) leave every session as it was.
  Status step(std::span<const StepInput> inputs, std::vector<float>& logits);

  // Prefills `prompt` after what the session holds, then decodes until an end token, max_tokens or
  // the context's end. Calls on_token for each token, and on_prefill (may be empty) after each
  // chunk of the prompt with the tokens done; false from either cancels. Errors: an empty prompt, a
  // prompt that leaves no room for a token, wrong params, a non-finite logit. Afterwards the
  // session holds the prompt and the generated tokens but the last, which was never fed; after a
  // cancelled prefill or an error, some of it. The repetition penalty sees `prompt` alone.
  Result<Generation> generate(Session& session, std::span<const int32_t> prompt,
                              const SamplingParams& params,
                              const std::function<bool(const GeneratedToken&)>& on_token,
                              const std::function<bool(int64_t done)>& on_prefill = {});

  // Of a GPU: bytes per second at which it reads the first gpu_buffer_bytes() of its weights, the
  // best of `passes`. Zero on the CPU.
  double measure_gpu_bandwidth(int passes);
  int64_t gpu_buffer_bytes() const;

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class Session {
 public:
  ~Session();
  int64_t length() const;  // tokens held
  // Forgets the tokens after the first `length` where the caches allow it (the last few tokens
  // only: drafts); an error otherwise. rewind(0) always works and empties the session.
  Status rewind(int64_t length);

  struct Impl;
  Impl& impl() { return *impl_; }
  explicit Session(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace hadal
