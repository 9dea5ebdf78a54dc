// JSON as Python reads and prints it, because the official chat encoders are Python: key order
// kept, separators ", " and ": ", non-ASCII literal, integers of any size digit for digit, floats
// as repr() prints them (json.dumps with ensure_ascii=False; specs V3.2 8.4 and V4 8.2).
// Two things that Python takes are refused here: NaN and the infinities, and lone surrogates.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hadal {

struct JsonMember;

struct JsonValue {
  enum class Kind { kNull, kFalse, kTrue, kNumber, kString, kArray, kObject };
  Kind kind = Kind::kNull;
  std::string text;                 // kNumber: as Python prints it. kString: the UTF-8 text
  std::vector<JsonMember> members;  // kArray (keys empty), kObject (keys unique, first place wins)

  // The member of an object, or null when it is none, lacks the key or holds null there.
  const JsonValue* find(std::string_view key) const;
  // "a string", "a list", ...: for sentences about wrong types.
  const char* kind_name() const;
};

struct JsonMember {
  std::string key;
  JsonValue value;
};

// `what` opens the sentence of an error ("FILE is not valid JSON: ..."). At most 500 levels deep.
Result<JsonValue> parse_json(std::string_view source, const std::string& what);

std::string python_json(const JsonValue& value);

// repr() of a finite double: 1.0, 1e-05, 1e+16, -0.0.
std::string python_float(double value);

}  // namespace hadal
