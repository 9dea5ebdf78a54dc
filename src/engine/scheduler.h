// Decides one step: which requests run, and how many tokens of each. A pure function of its own
// state: knows no model, no tokens' values and no clock, so that tests drive it with numbers.
//
// The rule: every decoding request gets one token. What is left of the budget goes to prompts: half
// of it to the first in order (priority, then arrival), so that a long prompt keeps moving, the
// rest to those with the fewest tokens left, so that a short prompt need not wait for a long one.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

namespace hadal {

using RequestId = uint64_t;

struct SchedulerLimits {
  int64_t max_step_tokens = 512;  // of a step, over all requests; more than max_running
  int max_running = 16;           // requests that hold a session
  int max_waiting = 256;          // requests in the queue
};

class Scheduler {
 public:
  // limits.max_step_tokens > limits.max_running >= 1, or a prompt could starve.
  explicit Scheduler(const SchedulerLimits& limits);

  // Puts a request at the end of the queue of its priority (a lower number goes first). False, and
  // nothing happens, where the queue is full.
  bool add(RequestId id, int priority);
  // The waiting request that may take a session now, or 0 (which is no id).
  RequestId next_to_start() const;
  // It got a session, and `prompt_tokens` (at least 1) of its prompt have to be run.
  void start(RequestId id, int64_t prompt_tokens);
  // The request is over, in whatever state it is. Unknown ids are ignored.
  void remove(RequestId id);

  struct Part {
    RequestId id;
    int64_t tokens;    // of the prompt; 1 for a decoding request
    bool gives_token;  // the step ends the prompt or decodes: a token is to be sampled
  };
  // The next step, decoding requests first; empty when nothing runs. The parts count as run.
  std::vector<Part> plan();

  int waiting() const { return static_cast<int>(waiting_.size()); }
  int running() const { return static_cast<int>(running_.size()); }

 private:
  struct Request {
    RequestId id;
    int priority;
    uint64_t arrival;
    int64_t left;  // tokens of the prompt; 0: decodes
  };
  static bool before(const Request& a, const Request& b);

  SchedulerLimits limits_;
  uint64_t arrivals_ = 0;
  std::deque<Request> waiting_;   // in order
  std::vector<Request> running_;  // in order
};

}  // namespace hadal
