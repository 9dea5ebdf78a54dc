// The scheduler without a model: the promises of its header, in small scenes and over random loads.
#include "engine/scheduler.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

namespace hadal {
namespace {

using Part = Scheduler::Part;

std::string shown(const std::vector<Part>& parts) {
  std::string s;
  for (const Part& p : parts) {
    s += (s.empty() ? "" : " ") + std::to_string(p.id) + ":" + std::to_string(p.tokens) +
         (p.gives_token ? "!" : "");
  }
  return s;
}

// Adds and starts a request at once.
void run_new(Scheduler& s, RequestId id, int64_t prompt, int priority = 0) {
  ASSERT_TRUE(s.add(id, priority));
  ASSERT_EQ(s.next_to_start(), id);
  s.start(id, prompt);
}

TEST(Scheduler, CutsAPromptIntoStepsAndThenDecodes) {
  Scheduler s({10, 2, 4});
  run_new(s, 1, 23);
  EXPECT_EQ(shown(s.plan()), "1:10");
  EXPECT_EQ(shown(s.plan()), "1:10");
  EXPECT_EQ(shown(s.plan()), "1:3!");
  EXPECT_EQ(shown(s.plan()), "1:1!");
  EXPECT_EQ(shown(s.plan()), "1:1!");
  s.remove(1);
  EXPECT_EQ(shown(s.plan()), "");
  EXPECT_EQ(s.running(), 0);
}

TEST(Scheduler, DecodesComeFirstAndPromptsGetTheRest) {
  Scheduler s({10, 4, 4});
  run_new(s, 1, 2);
  run_new(s, 2, 3);
  EXPECT_EQ(shown(s.plan()), "1:2! 2:3!");
  run_new(s, 3, 100);
  EXPECT_EQ(shown(s.plan()), "1:1! 2:1! 3:8");
}

TEST(Scheduler, AShortPromptPassesALongOne) {
  Scheduler s({20, 4, 4});
  run_new(s, 1, 1000);
  EXPECT_EQ(shown(s.plan()), "1:20");
  run_new(s, 2, 7);
  // Half for the first in order; the short one fits into the other half; the rest goes on.
  EXPECT_EQ(shown(s.plan()), "1:13 2:7!");
  EXPECT_EQ(shown(s.plan()), "2:1! 1:19");
}

TEST(Scheduler, ManyShortPromptsDoNotStopALongOne) {
  Scheduler s({20, 8, 8});
  run_new(s, 1, 1000);
  for (RequestId id = 2; id < 8; ++id) run_new(s, id, 50);
  int64_t of_long = 0;
  for (int step = 0; step < 10; ++step) {
    for (const Part& p : s.plan()) of_long += p.id == 1 ? p.tokens : 0;
  }
  EXPECT_EQ(of_long, 100);
}

TEST(Scheduler, TheQueueIsBounded) {
  Scheduler s({10, 1, 2});
  run_new(s, 1, 5);
  EXPECT_TRUE(s.add(2, 0));
  EXPECT_TRUE(s.add(3, 0));
  EXPECT_FALSE(s.add(4, 0));
  EXPECT_EQ(s.waiting(), 2);
  EXPECT_EQ(s.next_to_start(), 0u);  // max_running
  s.remove(2);                       // an abort in the queue makes room
  EXPECT_TRUE(s.add(5, 0));
  s.remove(1);
  EXPECT_EQ(s.next_to_start(), 3u);
}

TEST(Scheduler, PriorityThenArrival) {
  Scheduler s({10, 2, 8});
  for (auto [id, priority] : {std::pair<RequestId, int>{1, 5}, {2, 0}, {3, -1}, {4, 0}})
    ASSERT_TRUE(s.add(id, priority));
  std::vector<RequestId> order;
  for (int i = 0; i < 4; ++i) {
    order.push_back(s.next_to_start());
    s.start(order.back(), 1);
    s.remove(order.back());
  }
  EXPECT_EQ(order, (std::vector<RequestId>{3, 2, 4, 1}));
}

TEST(Scheduler, AnAbortInThePromptFreesTheBudget) {
  Scheduler s({10, 4, 4});
  run_new(s, 1, 100000);
  EXPECT_EQ(shown(s.plan()), "1:10");
  run_new(s, 2, 30);
  EXPECT_EQ(shown(s.plan()), "1:5 2:5");
  s.remove(1);
  s.remove(1);
  s.remove(77);
  EXPECT_EQ(shown(s.plan()), "2:10");
}

// Random arrivals and aborts. Every step keeps to the limits, every request that is not aborted
// runs exactly its prompt and then its decodes, and all of them end.
RC_GTEST_PROP(Scheduler, EveryRequestRunsToItsEnd, ()) {
  SchedulerLimits limits;
  limits.max_running = *rc::gen::inRange(1, 6);
  limits.max_step_tokens = limits.max_running + *rc::gen::inRange(1, 40);
  limits.max_waiting = *rc::gen::inRange(1, 8);
  Scheduler s(limits);
  struct Load {
    int64_t prompt, decodes;
  };
  std::map<RequestId, Load> waiting, running;
  RequestId next = 1;
  int to_come = 30;
  for (int step = 0; to_come > 0 || s.waiting() + s.running() > 0; ++step) {
    RC_ASSERT(step < 20000);
    while (to_come > 0 && *rc::gen::inRange(0, 3) == 0) {
      --to_come;
      Load load{*rc::gen::inRange(1, 200), *rc::gen::inRange(1, 20)};
      bool fits = static_cast<int>(waiting.size()) < limits.max_waiting;
      RC_ASSERT(s.add(next, *rc::gen::inRange(0, 2)) == fits);
      if (fits) waiting[next] = load;
      ++next;
    }
    while (RequestId id = s.next_to_start()) {
      RC_ASSERT(waiting.contains(id));
      s.start(id, waiting[id].prompt);
      running[id] = waiting[id];
      waiting.erase(id);
    }
    RC_ASSERT(static_cast<int>(running.size()) <= limits.max_running);
    auto decoding = std::count_if(running.begin(), running.end(),
                                  [](const auto& r) { return r.second.prompt == 0; });
    auto parts = s.plan();
    RC_ASSERT(running.empty() == parts.empty());
    int64_t total = 0;
    for (const Part& p : parts) {
      total += p.tokens;
      Load& load = running.at(p.id);
      bool decodes = load.prompt == 0;
      decoding -= decodes;
      RC_ASSERT(p.tokens >= 1 && (!decodes || p.tokens == 1));
      if (!decodes) load.prompt -= p.tokens;
      RC_ASSERT(load.prompt >= 0);
      RC_ASSERT(p.gives_token == (load.prompt == 0));
      if (p.gives_token && --load.decodes == 0) {
        running.erase(p.id);
        s.remove(p.id);
      }
    }
    RC_ASSERT(total <= limits.max_step_tokens);
    RC_ASSERT(decoding == 0);
    // No token of the budget is left while a prompt wants it.
    int64_t wanted = 0;
    for (auto& [id, load] : running) wanted += load.prompt;
    if (wanted > 0) RC_ASSERT(total == limits.max_step_tokens);
    if (!running.empty() && *rc::gen::inRange(0, 10) == 0) {
      s.remove(running.begin()->first);
      running.erase(running.begin());
    }
  }
  RC_ASSERT(running.empty() && waiting.empty());
}

}  // namespace
}  // namespace hadal
