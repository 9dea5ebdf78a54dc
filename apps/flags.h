// The command line: verbs, and the table of options that each verb declares. The table prints
// itself (`hadal VERB --help`). The only place that knows the library behind it is flags.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace hadal {

// The options of one verb. The value that a variable holds when it is declared is its default and
// is shown by --help; parsing writes the user's value into it. std::optional: no default.
class Flags {
 public:
  explicit Flags(CLI::App& app) : app_(app) {}

  // An argument without a name, in the order of declaration.
  void argument(const std::string& name, std::string& value, const std::string& about);
  void optional_argument(const std::string& name, std::string& value, const std::string& about);

  // `name` is "--top-p". Options of one `section` stand together in --help.
  void section(const std::string& title) { section_ = title; }
  void option(const std::string& name, std::string& value, const std::string& about);
  void option(const std::string& name, int& value, const std::string& about);
  void option(const std::string& name, int64_t& value, const std::string& about);
  void option(const std::string& name, std::optional<int64_t>& value, const std::string& about);
  void option(const std::string& name, std::optional<uint64_t>& value, const std::string& about);
  void option(const std::string& name, std::optional<float>& value, const std::string& about);
  // May be given several times.
  void option(const std::string& name, std::vector<std::string>& values, const std::string& about);
  // One of `allowed`.
  void choice(const std::string& name, std::string& value, const std::vector<std::string>& allowed,
              const std::string& about);
  // Without a value.
  void flag(const std::string& name, bool& value, const std::string& about);
  // The option `name` must be given.
  void require(const std::string& name);

 private:
  template <class T>
  CLI::Option* add(const std::string& name, T& value, const char* unit, const std::string& about);

  CLI::App& app_;
  std::string section_ = "Options";
};

// One sub-command.
class Verb {
 public:
  virtual ~Verb() = default;
  virtual std::string name() const = 0;
  virtual std::string about() const = 0;
  virtual void declare(Flags& flags) = 0;
  // Called after parsing. The exit status, or a sentence for the user (exit status 1).
  virtual Result<int> run() = 0;
};

inline constexpr int kUserError = 1;   // a wrong file, value or prompt
inline constexpr int kUsageError = 2;  // a wrong command line
inline constexpr int kInterrupted = 130;

// Parses the command line and runs the verb that it names. Returns the program's exit status.
int run_program(const std::vector<std::unique_ptr<Verb>>& verbs, int argc, char** argv);

}  // namespace hadal
