// The sessions of a server: those of finished requests stay with their tokens, so that a prompt
// that continues what one holds (the next turn of a chat) runs only what is new.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "hadal.h"

namespace hadal {

// A session with the ids that it holds.
struct HeldSession {
  std::unique_ptr<Session> session;
  std::vector<int32_t> ids;
};

class SessionPool {
 public:
  // At most `sessions` at once, as the engine was opened for. Without `reuse` all come empty.
  SessionPool(Engine& engine, int sessions, bool reuse);

  // The session that serves `prompt` best: of the idle ones that which can keep the most of its
  // tokens as the beginning of `prompt`, else a new one, else the one unused for longest, emptied.
  // At least one token of the prompt is left to run. At least one session must be free.
  HeldSession take(std::span<const int32_t> prompt);
  // Takes a session back; `ids` must be what it holds. Where they are not to be trusted, `ids` is
  // empty and so becomes the session.
  void give(HeldSession held);

 private:
  Engine& engine_;
  int unopened_;
  bool reuse_;
  std::vector<HeldSession> idle_;  // the longest unused first
};

}  // namespace hadal
