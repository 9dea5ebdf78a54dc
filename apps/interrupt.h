// Ctrl-C as a question that loops ask, instead of the end of the program.
#pragma once

namespace hadal {

// While one lives, SIGINT sets a mark. One at a time. A second SIGINT before the first was answered
// ends the program with the exit status of an interrupted one: a step may be long.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  bool interrupted() const;
  void clear();
};

// Waits until `fd` can be read; false where a SIGINT marked this or an earlier moment, also one
// that came just before the wait.
bool wait_readable(int fd);

}  // namespace hadal
