// Numbers as people read and write them: 159.6 GB, 1,048,576, "141G".
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace hadal {

// "159.61 GB", powers of 1000.
std::string show_bytes(int64_t bytes);
// "1,048,576"
std::string show_integer(int64_t n);
// "671.03 B", "3.21 M"
std::string show_count(int64_t n);

// "141G", "141GB" (powers of 1000), "96GiB" (powers of 1024), "1.5T", "640M" in bytes.
Result<int64_t> parse_memory(const std::string& text);

}  // namespace hadal
