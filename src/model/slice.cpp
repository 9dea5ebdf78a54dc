// Divides sizes, or says which one cannot be.
#include "model/slice.h"

#include <fmt/format.h>

namespace hadal {

Result<Config> rank_slice(const Config& config, int rank, int ranks) {
  if (ranks < 1 || rank < 0 || rank >= ranks)
    return Error{fmt::format("slice {}/{}: give rank/ranks with 0 <= rank < ranks", rank, ranks)};
  Config c = config;
  std::string fault;
  auto divide = [&](int64_t& n, const char* what) {
    if (n % ranks != 0 && fault.empty())
      fault = fmt::format("{} {} cannot be divided among {} ranks", n, what, ranks);
    n /= ranks;
  };
  divide(c.heads, "heads");
  divide(c.vocab, "vocabulary rows");
  divide(c.experts, "experts");
  c.first_expert = rank * c.experts;
  if (c.family == Family::kV4) {
    divide(c.o_groups, "output groups");
    divide(c.index_heads, "index heads");
  } else {
    divide(c.dense_inter, "rows of a dense MLP");
    divide(c.shared_inter, "rows of a shared expert");
  }
  if (!fault.empty()) return Error{fault};
  return c;
}

}  // namespace hadal
