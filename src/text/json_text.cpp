// nlohmann's event parser fills our small tree: its own tree would lose the digits of numbers.
#include "text/json_text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <unordered_map>

namespace hadal {
namespace {

constexpr size_t kMaxDepth = 500;

// A repeated key: Python's dict keeps the first place and the last value.
void merge_repeated_keys(std::vector<JsonMember>& members) {
  std::unordered_map<std::string_view, size_t> place;
  std::vector<bool> repeat(members.size());
  for (size_t i = 0; i < members.size(); ++i) {
    auto [first, fresh] = place.emplace(members[i].key, i);
    if (fresh) continue;
    members[first->second].value = std::move(members[i].value);
    repeat[i] = true;
  }
  if (place.size() == members.size()) return;
  std::vector<JsonMember> kept;
  for (size_t i = 0; i < members.size(); ++i) {
    if (!repeat[i]) kept.push_back(std::move(members[i]));
  }
  members = std::move(kept);
}

class TreeBuilder {
 public:
  explicit TreeBuilder(JsonValue* root) : root_(root) {}
  const std::string& error() const { return error_; }

  bool null() { return put({}); }
  bool boolean(bool v) {
    return put({v ? JsonValue::Kind::kTrue : JsonValue::Kind::kFalse, {}, {}});
  }
  bool number_integer(int64_t v) { return put_number(std::to_string(v)); }
  bool number_unsigned(uint64_t v) { return put_number(std::to_string(v)); }
  // Integers beyond 64 bits arrive here too; Python keeps every digit of them.
  bool number_float(double v, const std::string& source) {
    bool integer = source.find_first_of(".eE") == std::string::npos;
    return put_number(integer ? source : python_float(v));
  }
  bool string(std::string& v) { return put({JsonValue::Kind::kString, std::move(v), {}}); }
  bool binary(std::vector<uint8_t>&) { return false; }
  bool key(std::string& v) {
    key_ = std::move(v);
    return true;
  }
  bool start_object(size_t) { return open(JsonValue::Kind::kObject); }
  bool start_array(size_t) { return open(JsonValue::Kind::kArray); }
  bool end_object() {
    merge_repeated_keys(open_.back()->members);
    return close();
  }
  bool end_array() { return close(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& e) {
    error_ = e.what();
    // "[json.exception.parse_error.101] ..." says nothing to a person.
    size_t bracket = error_.find("] ");
    if (bracket != std::string::npos) error_.erase(0, bracket + 2);
    return false;
  }

 private:
  bool put_number(std::string digits) {
    return put({JsonValue::Kind::kNumber, std::move(digits), {}});
  }
  bool put(JsonValue v) {
    place(std::move(v));
    return true;
  }
  bool open(JsonValue::Kind kind) {
    if (open_.size() >= kMaxDepth) {
      error_ = fmt::format("it is nested deeper than {} levels", kMaxDepth);
      return false;
    }
    open_.push_back(place({kind, {}, {}}));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  // Pointers in open_ stay valid: a list grows only while none of its members is open.
  JsonValue* place(JsonValue v) {
    if (open_.empty()) {
      *root_ = std::move(v);
      return root_;
    }
    JsonValue* parent = open_.back();
    bool named = parent->kind == JsonValue::Kind::kObject;
    parent->members.push_back({named ? std::move(key_) : std::string(), std::move(v)});
    return &parent->members.back().value;
  }

  JsonValue* root_;
  std::vector<JsonValue*> open_;
  std::string key_, error_;
};

void print_string(std::string_view text, std::string* out) {
  *out += '"';
  for (char c : text) {
    switch (c) {
      case '"':
        *out += "\\\"";
        break;
      case '\\':
        *out += "\\\\";
        break;
      case '\n':
        *out += "\\n";
        break;
      case '\r':
        *out += "\\r";
        break;
      case '\t':
        *out += "\\t";
        break;
      case '\b':
        *out += "\\b";
        break;
      case '\f':
        *out += "\\f";
        break;
      default:
        if (uint8_t(c) < 0x20) {
          *out += fmt::format("\\u{:04x}", int(c));
        } else {
          *out += c;
        }
    }
  }
  *out += '"';
}

void print(const JsonValue& value, std::string* out) {
  switch (value.kind) {
    case JsonValue::Kind::kNull:
      *out += "null";
      break;
    case JsonValue::Kind::kFalse:
      *out += "false";
      break;
    case JsonValue::Kind::kTrue:
      *out += "true";
      break;
    case JsonValue::Kind::kNumber:
      *out += value.text;
      break;
    case JsonValue::Kind::kString:
      print_string(value.text, out);
      break;
    case JsonValue::Kind::kArray:
    case JsonValue::Kind::kObject: {
      bool object = value.kind == JsonValue::Kind::kObject;
      *out += object ? '{' : '[';
      for (size_t i = 0; i < value.members.size(); ++i) {
        if (i > 0) *out += ", ";
        if (object) {
          print_string(value.members[i].key, out);
          *out += ": ";
        }
        print(value.members[i].value, out);
      }
      *out += object ? '}' : ']';
    }
  }
}

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
  if (kind != Kind::kObject) return nullptr;
  for (const JsonMember& m : members) {
    if (m.key == key) return m.value.kind == Kind::kNull ? nullptr : &m.value;
  }
  return nullptr;
}

const char* JsonValue::kind_name() const {
  switch (kind) {
    case Kind::kNull:
      return "null";
    case Kind::kFalse:
      return "false";
    case Kind::kTrue:
      return "true";
    case Kind::kNumber:
      return "a number";
    case Kind::kString:
      return "a string";
    case Kind::kArray:
      return "a list";
    case Kind::kObject:
      return "an object";
  }
  return "";
}

Result<JsonValue> parse_json(std::string_view source, const std::string& what) {
  JsonValue root;
  TreeBuilder builder(&root);
  if (!nlohmann::json::sax_parse(source.begin(), source.end(), &builder)) {
    return Error{fmt::format("{} is not valid JSON: {}", what, builder.error())};
  }
  return root;
}

std::string python_json(const JsonValue& value) {
  std::string out;
  print(value, &out);
  return out;
}

std::string python_float(double value) {
  HADAL_CHECK(std::isfinite(value), std::to_string(value));
  // Shortest digits that read back as the same double, "d.ddde+XX", as in Python's repr.
  char buffer[40];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  std::string_view text(buffer, end.ptr - buffer);
  size_t e = text.find('e');
  std::string digits;
  for (char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  std::string sign = std::signbit(value) ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    std::string rest = digits.size() > 1 ? "." + digits.substr(1) : "";
    return fmt::format("{}{}{}e{}{:02}", sign, digits[0], rest, exponent < 0 ? '-' : '+',
                       std::abs(exponent));
  }
  if (exponent < 0) return sign + "0." + std::string(-exponent - 1, '0') + digits;
  size_t whole = exponent + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

}  // namespace hadal
