// Stop strings over a stream of text pieces: the text before the first stop string comes out, the
// stop string and all after it never do, however it is split over pieces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hadal {

class StopStrings {
 public:
  // None of `stops` may be empty. No stops: feed() returns what it gets.
  explicit StopStrings(std::vector<std::string> stops);

  // Takes the next piece; returns the text that can no longer be part of a stop string. Where
  // several stop strings overlap, the one that is complete first ends the stream (of these the
  // longest), so that the result does not depend on how the text was split.
  std::string feed(std::string_view piece);
  // The text held back, at the end of a stream that did not stop.
  std::string flush();
  bool stopped() const { return stopped_; }
  // The stop string that ended the stream.
  const std::string& matched() const { return matched_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;  // the end of the text so far, where it may begin a stop string
  bool stopped_ = false;
  std::string matched_;
};

}  // namespace hadal
