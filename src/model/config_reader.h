// Typed access to the keys of one JSON object. The first fault is kept and every later call returns
// a harmless value, so a parser reads like a list of keys. A key that holds null counts as absent.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace hadal {

class ConfigReader {
 public:
  using Json = nlohmann::json;

  // `prefix` is put before key names in messages; `fault` is shared by the readers of one file.
  ConfigReader(const Json& object, std::string path, std::string prefix,
               std::optional<Error>& fault)
      : object_(&object), path_(std::move(path)), prefix_(std::move(prefix)), fault_(&fault) {}

  bool has(const char* key) const { return find(key) != nullptr; }
  bool is_list(const char* key) const { return has(key) && find(key)->is_array(); }
  // An integer in [low, high]; `absent` where the key is not there, an error where that is not
  // given.
  int64_t integer(const char* key, int64_t low, int64_t high,
                  std::optional<int64_t> absent = std::nullopt);
  // A finite number in [low, high].
  double number(const char* key, double low, double high,
                std::optional<double> absent = std::nullopt);
  bool boolean(const char* key, bool absent);
  std::string text(const char* key, std::optional<std::string> absent = std::nullopt);
  std::vector<int64_t> integers(const char* key, int64_t low, int64_t high, size_t max_size);
  std::vector<std::string> texts(const char* key, size_t max_size);
  // The reader of a nested object; nothing where the key is not there.
  std::optional<ConfigReader> nested(const char* key);

  // "<path>: <prefix><key> <what>"
  void fail(const std::string& key, const std::string& what);
  bool failed() const { return fault_->has_value(); }

 private:
  const Json* find(const char* key) const;
  const Json* required(const char* key, bool optional);

  const Json* object_;
  std::string path_, prefix_;
  std::optional<Error>* fault_;
};

}  // namespace hadal
