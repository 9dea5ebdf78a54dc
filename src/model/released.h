// The config.json of a released model by its short name, for random weights of the real shapes.
#pragma once

#include <optional>
#include <string>

namespace hadal {

// "v4-flash" (0731), "v4-pro" (0813), "v3.2", "v3": the text; nothing for another name.
std::optional<std::string> released_config(const std::string& name);
// "v4-flash, v4-pro, v3.2, v3"
std::string released_names();

}  // namespace hadal
