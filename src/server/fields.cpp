// Reading fields; every sentence names the field, what it may be and what it is.
#include "server/fields.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace hadal {

using Kind = JsonValue::Kind;

std::optional<int64_t> whole_number(const JsonValue& value) {
  if (value.kind != Kind::kNumber) return {};
  const std::string& t = value.text;
  int64_t n = 0;
  auto [end, code] = std::from_chars(t.data(), t.data() + t.size(), n);
  if (code == std::errc() && end == t.data() + t.size()) return n;
  double d = std::strtod(t.c_str(), nullptr);
  if (std::abs(d) < 9e15 && d == std::floor(d)) return static_cast<int64_t>(d);
  return {};
}

Fields::Fields(const JsonValue& object, std::string path)
    : object_(object), path_(std::move(path)) {}

void Fields::fail(const std::string& name, const std::string& sentence) {
  if (!error_) error_ = ApiError{400, fmt::format("{}{} {}.", path_, name, sentence), path_ + name};
}

void Fields::fail_with(ApiError error) {
  if (!error_) error_ = std::move(error);
}

void Fields::join(const Fields& other) {
  if (!error_) error_ = other.error_;
}

void Fields::wrong_type(const char* name, const char* expected, const JsonValue& found) {
  fail(name, fmt::format("must be {}, not {}", expected, found.kind_name()));
}

std::optional<bool> Fields::boolean(const char* name) {
  const JsonValue* v = find(name);
  if (!v) return {};
  if (v->kind == Kind::kTrue || v->kind == Kind::kFalse) return v->kind == Kind::kTrue;
  wrong_type(name, "true or false", *v);
  return {};
}

bool Fields::boolean(const char* name, bool otherwise) { return boolean(name).value_or(otherwise); }

std::string Fields::string(const char* name, const std::string& otherwise) {
  const JsonValue* v = find(name);
  if (!v) return otherwise;
  if (v->kind == Kind::kString) return v->text;
  wrong_type(name, "a string", *v);
  return otherwise;
}

double Fields::number(const char* name, double otherwise, double lowest, double highest) {
  const JsonValue* v = find(name);
  if (!v) return otherwise;
  if (v->kind != Kind::kNumber) {
    wrong_type(name, "a number", *v);
    return otherwise;
  }
  double d = std::strtod(v->text.c_str(), nullptr);
  if (std::isfinite(d) && d >= lowest && d <= highest) return d;
  std::string allowed = highest < 1e30   ? fmt::format("between {} and {}", lowest, highest)
                        : lowest > -1e30 ? fmt::format("at least {}", lowest)
                                         : std::string("a finite number");
  fail(name, fmt::format("is {}: it must be {}", v->text, allowed));
  return otherwise;
}

std::optional<int64_t> Fields::integer(const char* name, int64_t lowest, int64_t highest) {
  const JsonValue* v = find(name);
  if (!v) return {};
  auto n = whole_number(*v);
  if (v->kind != Kind::kNumber) {
    wrong_type(name, "a whole number", *v);
  } else if (!n || *n < lowest || *n > highest) {
    fail(name, fmt::format("is {}: it must be a whole number {}", v->text,
                           highest > (1ll << 60) ? fmt::format("of at least {}", lowest)
                                                 : fmt::format("from {} to {}", lowest, highest)));
  } else {
    return n;
  }
  return {};
}

int64_t Fields::integer(const char* name, int64_t otherwise, int64_t lowest, int64_t highest) {
  return integer(name, lowest, highest).value_or(otherwise);
}

std::vector<std::string> Fields::strings(const char* name) {
  const JsonValue* v = find(name);
  std::vector<std::string> out;
  if (!v) return out;
  if (v->kind == Kind::kString) {
    out.push_back(v->text);
  } else if (v->kind == Kind::kArray) {
    for (const JsonMember& m : v->members) {
      if (m.value.kind != Kind::kString) {
        wrong_type(name, "a string or a list of strings", m.value);
        return out;
      }
      out.push_back(m.value.text);
    }
  } else {
    wrong_type(name, "a string or a list of strings", *v);
  }
  for (const std::string& s : out)
    if (s.empty()) fail(name, "holds an empty string: leave it out");
  return out;
}

std::vector<int32_t> Fields::ids(const char* name, int64_t vocab) {
  const JsonValue* v = find(name);
  std::vector<int32_t> out;
  if (!v) return out;
  if (v->kind != Kind::kArray) wrong_type(name, "a list of token ids", *v);
  for (const JsonMember& m : v->members) {
    auto n = whole_number(m.value);
    if (!n || *n < 0 || *n >= vocab) {
      fail(name, fmt::format("holds {}: a token id is a whole number from 0 to {}",
                             m.value.kind == Kind::kNumber ? m.value.text : m.value.kind_name(),
                             vocab - 1));
      return {};
    }
    out.push_back(static_cast<int32_t>(*n));
  }
  return out;
}

const JsonValue* Fields::object(const char* name) {
  const JsonValue* v = find(name);
  if (v && v->kind != Kind::kObject) wrong_type(name, "an object", *v);
  return v && v->kind == Kind::kObject ? v : nullptr;
}

}  // namespace hadal
