// Runs the built program as a user does: arguments and standard input in, exit status and both
// outputs back; through a terminal where a test types.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utmp.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace hadal {

inline const std::string kTinyV4 = std::string(HADAL_MODELS) + "/tiny-v4";
inline const std::string kTinyV32 = std::string(HADAL_MODELS) + "/tiny-v3.2";

struct Outcome {
  int status = -1;  // exit status; 128 + signal when one ended the program
  std::string out, err;
};

// A folder for one test's files, removed with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "hadal_test_XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(*this / name, std::ios::binary) << text;
    return *this / name;
  }

 private:
  std::string path_;
};

// The program while it runs. Input goes to standard input at once and is then closed, or, on a
// terminal, is typed by type().
class Program {
 public:
  // `open_files`: how many the program may have, 0 for as many as this one.
  explicit Program(const std::vector<std::string>& arguments, bool terminal = false,
                   int open_files = 0) {
    int in[2] = {-1, -1}, out[2], err[2];
    EXPECT_EQ(pipe(err), 0);
    if (terminal) {
      EXPECT_EQ(openpty(&in[1], &in[0], nullptr, nullptr, nullptr), 0);
      out[0] = in[1];
      out[1] = in[0];
    } else {
      EXPECT_EQ(pipe(in), 0);
      EXPECT_EQ(pipe(out), 0);
    }
    pid_ = fork();
    if (pid_ == 0) {
      if (terminal) {
        login_tty(in[0]);
      } else {
        dup2(in[0], 0);
        dup2(out[1], 1);
      }
      dup2(err[1], 2);
      for (int fd = 3; fd < 64; ++fd) close(fd);
      rlimit files = {static_cast<rlim_t>(open_files), static_cast<rlim_t>(open_files)};
      if (open_files > 0) setrlimit(RLIMIT_NOFILE, &files);
      std::vector<char*> argv = {const_cast<char*>("hadal")};
      for (const auto& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
      argv.push_back(nullptr);
      execv(HADAL_BINARY, argv.data());
      _exit(127);
    }
    close(in[0]);
    if (!terminal) close(out[1]);
    close(err[1]);
    in_ = in[1];
    out_ = out[0];
    err_ = err[0];
    terminal_ = terminal;
  }

  ~Program() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    if (!terminal_) close_input();
    close(out_);
    close(err_);
  }

  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Writes while reading, so that neither side waits for the other's full pipe.
  void type(std::string_view text) {
    while (!text.empty()) {
      pollfd p = {in_, POLLOUT, 0};
      if (poll(&p, 1, 10) > 0 && (p.revents & POLLOUT)) {
        ssize_t n = write(in_, text.data(), std::min<size_t>(text.size(), 512));
        if (n <= 0) return;
        text.remove_prefix(static_cast<size_t>(n));
      } else if (p.revents & POLLERR) {
        return;
      }
      read_some(0);
    }
  }
  void close_input() {
    if (in_ >= 0) close(in_);
    in_ = -1;
  }
  void interrupt() { kill(pid_, SIGINT); }
  void terminate() { kill(pid_, SIGTERM); }
  // What came on standard error up to the last wait.
  const std::string& error_text() const { return outcome_.err; }

  // Waits until standard output (err: standard error) holds `text` behind position `from`; returns
  // the position after it.
  size_t wait_for(const std::string& text, size_t from = 0, bool err = false) {
    auto& seen = err ? outcome_.err : outcome_.out;
    while (seen.find(text, from) == std::string::npos) {
      if (!read_some(100) || late()) {
        ADD_FAILURE() << "no \"" << text << "\" came, but:\n" << outcome_.out << outcome_.err;
        return seen.size();
      }
    }
    return seen.find(text, from) + text.size();
  }

  Outcome finish() {
    while (read_some(100) && !late()) {
    }
    if (late()) {
      ADD_FAILURE() << "the program did not end:\n" << outcome_.out << outcome_.err;
      kill(pid_, SIGKILL);
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    outcome_.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return outcome_;
  }

 private:
  // False when both outputs have ended.
  bool read_some(int wait_ms) {
    pollfd p[2] = {{out_open_ ? out_ : -1, POLLIN, 0}, {err_open_ ? err_ : -1, POLLIN, 0}};
    poll(p, 2, wait_ms);
    char buffer[65536];
    for (int i = 0; i < 2; ++i) {
      if (!p[i].revents) continue;
      ssize_t n = read(p[i].fd, buffer, sizeof buffer);
      if (n > 0)
        (i == 0 ? outcome_.out : outcome_.err).append(buffer, static_cast<size_t>(n));
      else
        (i == 0 ? out_open_ : err_open_) = false;
    }
    return out_open_ || err_open_;
  }

  bool late() const { return std::chrono::steady_clock::now() - start_ > std::chrono::minutes(5); }

  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1, err_ = -1;
  bool terminal_ = false, out_open_ = true, err_open_ = true;
  Outcome outcome_;
};

inline Outcome hadal_program(const std::vector<std::string>& arguments,
                             const std::string& input = "") {
  signal(SIGPIPE, SIG_IGN);  // a program that ends early need not read its input
  Program program(arguments);
  program.type(input);
  program.close_input();
  return program.finish();
}

// The wrong input gave one sentence on standard error that holds `part` (beside the loading line),
// nothing on standard output, and this exit status.
inline void expect_refused(const Outcome& o, int status, const std::string& part) {
  EXPECT_EQ(o.status, status) << o.err;
  EXPECT_NE(o.err.find(part), std::string::npos) << o.err;
  size_t start = o.err.starts_with("loading: ") ? o.err.find('\n') + 1 : 0;
  EXPECT_EQ(std::count(o.err.begin() + static_cast<int64_t>(start), o.err.end(), '\n'), 1) << o.err;
  EXPECT_EQ(o.out, "");
}

}  // namespace hadal
