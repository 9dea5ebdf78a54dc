// Errors of two kinds, never mixed.
//   User (bad file, bad request, no memory): Result<T> carrying one sentence that says what to do.
//   Ours (a broken invariant): HADAL_CHECK aborts with file, line and the values.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace hadal {

struct Error {
  std::string message;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : v_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : v_(std::in_place_index<1>, std::move(error)) {}
  bool ok() const { return v_.index() == 0; }
  T& value() & { return std::get<0>(v_); }
  const T& value() const& { return std::get<0>(v_); }
  T&& value() && { return std::get<0>(std::move(v_)); }
  const Error& error() const { return std::get<1>(v_); }

 private:
  std::variant<T, Error> v_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}
  bool ok() const { return !error_; }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

// Prints "file:line: CHECK(cond) failed: message" and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* cond,
                               const std::string& message);

}  // namespace hadal

#define HADAL_CHECK(cond, message)                                            \
  do {                                                                        \
    if (!(cond)) ::hadal::check_failed(__FILE__, __LINE__, #cond, (message)); \
  } while (0)

#define HADAL_CONCAT_(a, b) a##b
#define HADAL_CONCAT(a, b) HADAL_CONCAT_(a, b)

// HADAL_TRY(auto x, f());  — returns the error of f() from this function, or defines x.
#define HADAL_TRY(decl, expr)                                                                \
  auto HADAL_CONCAT(result_, __LINE__) = (expr);                                             \
  if (!HADAL_CONCAT(result_, __LINE__).ok()) return HADAL_CONCAT(result_, __LINE__).error(); \
  decl = std::move(HADAL_CONCAT(result_, __LINE__)).value()

// HADAL_TRY_STATUS(f());  — the same for a Status.
#define HADAL_TRY_STATUS(expr)                 \
  do {                                         \
    auto status_ = (expr);                     \
    if (!status_.ok()) return status_.error(); \
  } while (0)
