// Choosing the session whose tokens a prompt continues.
#include "engine/session_pool.h"

#include <algorithm>

namespace hadal {

SessionPool::SessionPool(Engine& engine, int sessions, bool reuse)
    : engine_(engine), unopened_(sessions), reuse_(reuse) {}

HeldSession SessionPool::take(std::span<const int32_t> prompt) {
  struct Choice {
    size_t index;
    int64_t common;
  };
  std::vector<Choice> choices;
  for (size_t i = 0; reuse_ && i < idle_.size(); ++i) {
    const auto& ids = idle_[i].ids;
    auto end = std::ranges::mismatch(ids, prompt).in1;
    auto common = std::min<int64_t>(end - ids.begin(), static_cast<int64_t>(prompt.size()) - 1);
    if (common > 0) choices.push_back({i, common});
  }
  std::ranges::stable_sort(choices, [](auto a, auto b) { return a.common > b.common; });
  auto pick = [&](size_t index) {
    HeldSession held = std::move(idle_[index]);
    idle_.erase(idle_.begin() + static_cast<int64_t>(index));
    return held;
  };
  for (Choice c : choices) {
    // The caches can take back the last few tokens only; others go on to the next best.
    if (!idle_[c.index].session->rewind(c.common).ok()) continue;
    HeldSession held = pick(c.index);
    held.ids.resize(c.common);
    return held;
  }
  if (unopened_ > 0) {
    --unopened_;
    auto session = engine_.open_session();
    HADAL_CHECK(session.ok(), "the engine was opened for this many sessions");
    return {std::move(session).value(), {}};
  }
  HADAL_CHECK(!idle_.empty(), "a free session");
  HeldSession held = pick(0);
  HADAL_CHECK(held.session->rewind(0).ok(), "a session can always be emptied");
  held.ids.clear();
  return held;
}

void SessionPool::give(HeldSession held) {
  if (held.ids.empty()) HADAL_CHECK(held.session->rewind(0).ok(), "a session can be emptied");
  HADAL_CHECK(static_cast<int64_t>(held.ids.size()) == held.session->length(),
              "the ids of a session");
  // An empty session has nothing to lose, so it is the first to be taken.
  auto at = held.ids.empty() ? idle_.begin() : idle_.end();
  idle_.insert(at, std::move(held));
}

}  // namespace hadal
