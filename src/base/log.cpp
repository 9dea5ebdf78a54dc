// Standard error lines and the progress bar.
#include "base/log.h"

#include <unistd.h>

#include <cstdio>

namespace hadal {

void log_warning(const std::string& message) {
  std::fprintf(stderr, "hadal: warning: %s\n", message.c_str());
}

void log_info(const std::string& message) { std::fprintf(stderr, "hadal: %s\n", message.c_str()); }

ProgressBar::ProgressBar(std::string what, bool bytes)
    : what_(std::move(what)),
      bytes_(bytes),
      terminal_(isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()) {}

void ProgressBar::update(int64_t done, int64_t total) {
  constexpr int kWidth = 30;
  auto now = std::chrono::steady_clock::now();
  done_ = done;
  total_ = total;
  bool first = !open_, last = done >= total;
  open_ = true;
  if (!terminal_) return;
  if (!first && !last && now - last_ < std::chrono::milliseconds(50)) return;
  last_ = now;
  int filled = total > 0 ? static_cast<int>(kWidth * done / total) : kWidth;
  double seconds = std::chrono::duration<double>(now - start_).count();
  std::string bar(filled, '='), rest(kWidth - filled, ' ');
  if (bytes_) {
    std::fprintf(stderr, "\r%s [%s%s] %.1f/%.1f GB  %.1f GB/s ", what_.c_str(), bar.c_str(),
                 rest.c_str(), done * 1e-9, total * 1e-9, done * 1e-9 / (seconds + 1e-9));
  } else {
    std::fprintf(stderr, "\r%s [%s%s] %lld/%lld ", what_.c_str(), bar.c_str(), rest.c_str(),
                 static_cast<long long>(done), static_cast<long long>(total));
  }
  std::fflush(stderr);
}

ProgressBar::~ProgressBar() {
  if (!open_) return;
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  if (terminal_) std::fprintf(stderr, "\r\033[K");
  if (!terminal_ || seconds > 0.5) {
    if (bytes_)
      std::fprintf(stderr, "%s: %.2f GB in %.1f s\n", what_.c_str(), done_ * 1e-9, seconds);
    else
      std::fprintf(stderr, "%s: %lld of %lld in %.1f s\n", what_.c_str(),
                   static_cast<long long>(done_), static_cast<long long>(total_), seconds);
  }
}

}  // namespace hadal
