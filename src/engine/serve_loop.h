// The engine thread of a server: owns the sessions of an Engine, takes requests from any thread,
// and runs one step after the other over all of them. Knows token ids; text is the listeners'
// matter.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/session_pool.h"
#include "hadal.h"

namespace hadal {

struct RequestEnd {
  FinishReason reason = FinishReason::kCancelled;  // kStop: an end token, a stop id, the listener
  std::string error;                               // not empty: the engine could not go on
};

// Hears of one request. Called in the engine thread only, on_end last and exactly once; then it is
// destroyed there. Calls should be short: all requests wait.
class RequestListener {
 public:
  virtual ~RequestListener() = default;
  // The request got a session that holds the first `cached` tokens of its prompt.
  virtual void on_start(int64_t cached) = 0;
  // With prompt_logprobs, for each token of the prompt but the first, in order.
  virtual void on_prompt_token(const GeneratedToken& token) = 0;
  // `ends`: an end token or stop id, after which nothing comes. False ends the request (kStop).
  virtual bool on_token(const GeneratedToken& token, bool ends) = 0;
  // Asked after each on_token: tokens that must come next, whatever the model would choose.
  virtual std::vector<int32_t> force() { return {}; }
  virtual void on_end(const RequestEnd& end) = 0;
};

struct ServeRequest {
  std::vector<int32_t> prompt;        // at least one, fewer than max_context, each in [0, V)
  SamplingParams sampling;            // passes check_sampling
  std::vector<TokenBias> logit_bias;  // ids in [0, V)
  std::vector<int32_t> stop_ids;      // end the answer, also with ignore_eos
  int min_tokens = 0;                 // no end token and no stop id before
  int prompt_logprobs = -1;           // as SamplingParams::logprobs, of the prompt; runs all of it
  int priority = 0;                   // lower goes first
  std::unique_ptr<RequestListener> listener;
};

// Sums since the start but for the gauges.
struct ServeStats {
  int running = 0, waiting = 0;  // gauges
  double cache_usage = 0;  // gauge, 0 to 1: tokens of running requests of all there is room for
  int64_t steps = 0;
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
};

class ServeLoop {
 public:
  // `engine` was opened for limits.max_running sessions, none of them open, and must outlive this.
  ServeLoop(Engine& engine, const SchedulerLimits& limits, bool reuse_prefixes);
  // Ends all requests (kCancelled) and joins the thread.
  ~ServeLoop();

  // All of these from any thread.

  // All requests, or none and an empty list where they do not fit into the queue or the engine has
  // failed; their listeners are then destroyed unheard.
  std::vector<RequestId> submit(std::vector<ServeRequest> requests);
  // Ends a request, between two steps, as kCancelled. Unknown and ended ids are ignored.
  void abort(RequestId id);
  // Whether the engine can produce a token; false for good after it failed.
  bool healthy() const { return healthy_; }
  ServeStats stats() const;
  int capacity() const { return limits_.max_running + limits_.max_waiting; }

 private:
  struct Active;
  void run();
  bool take_orders();
  void start_waiting();
  void step(const std::vector<Scheduler::Part>& parts);
  void deliver(Active& active, const Scheduler::Part& part, std::span<const float> rows);
  bool deliver_prompt(Active& active, size_t first, std::span<const float> rows);
  void end(RequestId id, const RequestEnd& end);
  void fail_all(const std::string& sentence);
  void publish();

  Engine& engine_;
  SchedulerLimits limits_;
  Scheduler scheduler_;
  SessionPool sessions_;
  std::unordered_map<RequestId, std::unique_ptr<Active>> active_;
  std::vector<float> logits_;
  std::vector<int32_t> scratch_;
  ServeStats sums_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable orders_;
  std::vector<std::pair<RequestId, ServeRequest>> arrived_;
  std::vector<RequestId> aborted_;
  int open_ = 0;  // requests that have not ended
  RequestId next_id_ = 1;
  bool stop_ = false;
  ServeStats published_;
  std::atomic<bool> healthy_ = true;
  std::thread thread_;  // last: starts when all else is there
};

}  // namespace hadal
