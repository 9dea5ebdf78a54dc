// The one way in which a broken invariant ends the program.
#include "base/status.h"

#include <cstdio>
#include <cstdlib>

namespace hadal {

void check_failed(const char* file, int line, const char* cond, const std::string& message) {
  std::fprintf(stderr, "%s:%d: CHECK(%s) failed: %s\n", file, line, cond, message.c_str());
  std::abort();
}

}  // namespace hadal
