// The string literals of a Python source, as their run-time values: how the fixed prompt strings
// are read from a checkpoint's encoding/*.py without running Python.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hadal {

struct PythonLiterals {
  // In order of appearance. Neighbours ("a" "b", and "a" + "b") count as one; inside brackets the
  // neighbour may be on another line. f-strings keep {name} and have {{ }} undone.
  std::vector<std::string> values;
  // NAME = "value" and NAME: type = "value": what a placeholder {NAME} stands for.
  std::vector<std::pair<std::string, std::string>> names;
};

// Any bytes are accepted; a literal that never ends, ends with the source.
PythonLiterals python_literals(std::string_view source);

}  // namespace hadal
