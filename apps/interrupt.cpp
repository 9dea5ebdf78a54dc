// SIGINT. A signal handler gets nothing but the signal's number, so its mark is the one variable of
// the program that lives outside an object.
#include "interrupt.h"

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

}  // namespace hadal
