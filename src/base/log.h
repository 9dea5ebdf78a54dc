// Lines for the person at the terminal, on standard error, and a progress bar. Nothing here is
// output of the program: that goes to standard output.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace hadal {

// "hadal: warning: <message>" on standard error.
void log_warning(const std::string& message);
// "hadal: <message>" on standard error.
void log_info(const std::string& message);

// A bar on a terminal; a line at the start and one at the end where standard error is none.
// Unit-free counts, or bytes (shown as GB and GB/s).
class ProgressBar {
 public:
  ProgressBar(std::string what, bool bytes);
  ~ProgressBar();  // finishes the line
  void update(int64_t done, int64_t total);

 private:
  std::string what_;
  bool bytes_, terminal_, open_ = false;
  int64_t done_ = 0, total_ = 0;
  std::chrono::steady_clock::time_point start_, last_;
};

}  // namespace hadal
