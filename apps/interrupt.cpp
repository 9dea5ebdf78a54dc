// SIGINT. A signal handler gets nothing but the signal's number, so its mark is the one variable of
// the program that lives outside an object.
#include "interrupt.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "flags.h"

namespace hadal {
namespace {

volatile sig_atomic_t marked = 0;

void on_interrupt(int) {
  if (marked) _exit(kInterrupted);
  marked = 1;
}

void install(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;  // without SA_RESTART: a blocked read must return
  sigaction(SIGINT, &action, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  marked = 0;
  install(on_interrupt);
}
InterruptGuard::~InterruptGuard() { install(SIG_DFL); }

bool InterruptGuard::interrupted() const { return marked != 0; }
void InterruptGuard::clear() { marked = 0; }

bool wait_readable(int fd) {
  // Held back from the look at the mark on, a signal is let in by ppoll alone and ends it.
  sigset_t interrupt, before;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  sigprocmask(SIG_BLOCK, &interrupt, &before);
  bool readable = false;
  while (!marked && !readable) {
    pollfd p = {fd, POLLIN, 0};
    int n = ppoll(&p, 1, nullptr, &before);
    readable = n > 0 || (n < 0 && errno != EINTR);
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  return readable;
}

}  // namespace hadal
