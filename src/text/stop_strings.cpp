// Stop strings: the held back text is always shorter than the longest stop string, so searching it
// anew for each piece costs little.
#include "text/stop_strings.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace hadal {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const auto& s : stops_) HADAL_CHECK(!s.empty(), "an empty stop string");
}

std::string StopStrings::feed(std::string_view piece) {
  if (stopped_) return {};
  held_ += piece;
  size_t end = std::string::npos, begin = 0;
  for (const auto& s : stops_) {
    size_t at = held_.find(s);
    if (at == std::string::npos) continue;
    if (at + s.size() < end || (at + s.size() == end && at < begin)) {
      begin = at;
      end = at + s.size();
    }
  }
  if (end != std::string::npos) {
    stopped_ = true;
    matched_ = held_.substr(begin, end - begin);
    held_.resize(begin);
    return std::exchange(held_, {});
  }
  size_t keep = 0;
  for (const auto& s : stops_) {
    for (size_t n = std::min(s.size() - 1, held_.size()); n > keep; --n) {
      if (held_.ends_with(std::string_view(s).substr(0, n))) keep = n;
    }
  }
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, out.size());
  return out;
}

std::string StopStrings::flush() { return std::exchange(held_, {}); }

}  // namespace hadal
