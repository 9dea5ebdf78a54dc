// Typed reading of a request's JSON object. The first thing that is wrong is kept; the reads after
// it go on with defaults, and who reads asks once, at the end. Null counts as absent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/api_error.h"
#include "text/json_text.h"

namespace hadal {

class Fields {
 public:
  // `object` must outlive this. `path` is put before names in messages ("stream_options.").
  explicit Fields(const JsonValue& object, std::string path = {});

  bool has(const char* name) const { return object_.find(name) != nullptr; }
  const JsonValue* find(const char* name) const { return object_.find(name); }

  bool boolean(const char* name, bool otherwise);
  std::optional<bool> boolean(const char* name);
  std::string string(const char* name, const std::string& otherwise = {});
  // Finite numbers in [lowest, highest].
  double number(const char* name, double otherwise, double lowest, double highest);
  int64_t integer(const char* name, int64_t otherwise, int64_t lowest, int64_t highest);
  std::optional<int64_t> integer(const char* name, int64_t lowest, int64_t highest);
  // A string or a list of strings, none of them empty.
  std::vector<std::string> strings(const char* name);
  // A list of token ids in [0, vocab).
  std::vector<int32_t> ids(const char* name, int64_t vocab);
  // An object, or null.
  const JsonValue* object(const char* name);

  // Something else that is wrong with a field.
  void fail(const std::string& name, const std::string& sentence);
  // An error with a status or code of its own.
  void fail_with(ApiError error);
  const std::optional<ApiError>& error() const { return error_; }
  // The error of another part of the request joins this one's.
  void join(const Fields& other);

 private:
  void wrong_type(const char* name, const char* expected, const JsonValue& found);

  const JsonValue& object_;
  std::string path_;
  std::optional<ApiError> error_;
};

// A whole number, also one written as 3.0; nothing where it is none or beyond int64.
std::optional<int64_t> whole_number(const JsonValue& value);

}  // namespace hadal
