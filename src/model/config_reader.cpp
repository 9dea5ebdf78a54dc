// Wrong types, wrong ranges and missing keys of a config.json become sentences here.
#include "model/config_reader.h"

#include <fmt/format.h>

#include <cmath>

namespace hadal {
namespace {

// A value as a message may show it.
std::string shown(const nlohmann::json& value) {
  std::string s = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return s.size() > 60 ? s.substr(0, 60) + "..." : s;
}

}  // namespace

const ConfigReader::Json* ConfigReader::find(const char* key) const {
  auto it = object_->find(key);
  return it == object_->end() || it->is_null() ? nullptr : &*it;
}

const ConfigReader::Json* ConfigReader::required(const char* key, bool optional) {
  const Json* value = find(key);
  if (!value && !optional) fail(key, "is missing");
  return value;
}

void ConfigReader::fail(const std::string& key, const std::string& what) {
  if (!*fault_) *fault_ = Error{fmt::format("{}: {}{} {}", path_, prefix_, key, what)};
}

int64_t ConfigReader::integer(const char* key, int64_t low, int64_t high,
                              std::optional<int64_t> absent) {
  const Json* value = required(key, absent.has_value());
  if (!value) return absent.value_or(low);
  bool fits = value->is_number_integer() &&
              !(value->is_number_unsigned() && value->get<uint64_t>() > uint64_t(INT64_MAX));
  int64_t n = fits ? value->get<int64_t>() : low;
  if (fits && n >= low && n <= high) return n;
  fail(key, fmt::format("is {}, expected an integer from {} to {}", shown(*value), low, high));
  return low;
}

double ConfigReader::number(const char* key, double low, double high,
                            std::optional<double> absent) {
  const Json* value = required(key, absent.has_value());
  if (!value) return absent.value_or(low);
  double n = value->is_number() ? value->get<double>() : NAN;
  if (n >= low && n <= high) return n;
  fail(key, fmt::format("is {}, expected a number from {} to {}", shown(*value), low, high));
  return low;
}

bool ConfigReader::boolean(const char* key, bool absent) {
  const Json* value = find(key);
  if (!value) return absent;
  if (value->is_boolean()) return value->get<bool>();
  fail(key, fmt::format("is {}, expected true or false", shown(*value)));
  return absent;
}

std::string ConfigReader::text(const char* key, std::optional<std::string> absent) {
  const Json* value = required(key, absent.has_value());
  if (!value) return absent.value_or("");
  if (value->is_string()) return value->get<std::string>();
  fail(key, fmt::format("is {}, expected a string", shown(*value)));
  return "";
}

std::vector<int64_t> ConfigReader::integers(const char* key, int64_t low, int64_t high,
                                            size_t max_size) {
  const Json* value = required(key, false);
  if (!value) return {};
  std::vector<int64_t> list;
  bool good = value->is_array() && value->size() <= max_size;
  if (good) {
    for (const Json& v : *value) {
      good &= v.is_number_integer() &&
              !(v.is_number_unsigned() && v.get<uint64_t>() > uint64_t(INT64_MAX));
      if (!good) break;
      list.push_back(v.get<int64_t>());
      good &= list.back() >= low && list.back() <= high;
    }
  }
  if (good) return list;
  fail(key, fmt::format("is {}, expected a list of at most {} integers from {} to {}",
                        shown(*value), max_size, low, high));
  return {};
}

std::vector<std::string> ConfigReader::texts(const char* key, size_t max_size) {
  const Json* value = required(key, false);
  if (!value) return {};
  std::vector<std::string> list;
  bool good = value->is_array() && value->size() <= max_size;
  if (good) {
    for (const Json& v : *value) {
      good &= v.is_string();
      if (good) list.push_back(v.get<std::string>());
    }
  }
  if (good) return list;
  fail(key, fmt::format("is {}, expected a list of at most {} strings", shown(*value), max_size));
  return {};
}

std::optional<ConfigReader> ConfigReader::nested(const char* key) {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  if (value->is_object()) return ConfigReader(*value, path_, prefix_ + key + ".", *fault_);
  fail(key, fmt::format("is {}, expected an object", shown(*value)));
  return std::nullopt;
}

}  // namespace hadal
