// The queue, and the division of a step's tokens.
#include "engine/scheduler.h"

#include <algorithm>

#include "base/status.h"

namespace hadal {

Scheduler::Scheduler(const SchedulerLimits& limits) : limits_(limits) {
  HADAL_CHECK(limits.max_running >= 1 && limits.max_step_tokens > limits.max_running &&
                  limits.max_waiting >= 0,
              "limits that let every request move");
}

bool Scheduler::before(const Request& a, const Request& b) {
  return a.priority != b.priority ? a.priority < b.priority : a.arrival < b.arrival;
}

bool Scheduler::add(RequestId id, int priority) {
  if (waiting() >= limits_.max_waiting) return false;
  Request r{id, priority, arrivals_++, 0};
  waiting_.insert(std::upper_bound(waiting_.begin(), waiting_.end(), r, before), r);
  return true;
}

RequestId Scheduler::next_to_start() const {
  if (waiting_.empty() || running() >= limits_.max_running) return 0;
  return waiting_.front().id;
}

void Scheduler::start(RequestId id, int64_t prompt_tokens) {
  HADAL_CHECK(id != 0 && id == next_to_start(), "the request whose turn it is");
  HADAL_CHECK(prompt_tokens > 0, "a prompt has a token to run");
  Request r = waiting_.front();
  waiting_.pop_front();
  r.left = prompt_tokens;
  running_.insert(std::upper_bound(running_.begin(), running_.end(), r, before), r);
}

void Scheduler::remove(RequestId id) {
  auto is_it = [id](const Request& r) { return r.id == id; };
  std::erase_if(waiting_, is_it);
  std::erase_if(running_, is_it);
}

std::vector<Scheduler::Part> Scheduler::plan() {
  std::vector<Part> parts;
  std::vector<Request*> prompts;  // in order
  for (Request& r : running_) {
    if (r.left == 0) {
      parts.push_back({r.id, 1, true});
    } else {
      prompts.push_back(&r);
    }
  }
  if (prompts.empty()) return parts;

  std::vector<int64_t> share(prompts.size(), 0);
  int64_t budget = limits_.max_step_tokens - static_cast<int64_t>(parts.size());
  auto give = [&](size_t i, int64_t at_most) {
    int64_t n = std::min({at_most, budget, prompts[i]->left - share[i]});
    share[i] += n;
    budget -= n;
  };
  give(0, (budget + 1) / 2);
  std::vector<size_t> shortest(prompts.size());
  for (size_t i = 0; i < shortest.size(); ++i) shortest[i] = i;
  std::stable_sort(shortest.begin(), shortest.end(),
                   [&](size_t a, size_t b) { return prompts[a]->left < prompts[b]->left; });
  for (size_t i : shortest) give(i, budget);

  for (size_t i = 0; i < prompts.size(); ++i) {
    if (share[i] == 0) continue;
    prompts[i]->left -= share[i];
    parts.push_back({prompts[i]->id, share[i], prompts[i]->left == 0});
  }
  return parts;
}

}  // namespace hadal
