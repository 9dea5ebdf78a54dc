// SHA-256 (FIPS 180-4): names the content of a text or a file by a fingerprint.
#pragma once

#include <string>
#include <string_view>

namespace hadal {

// 64 lower-case hexadecimal digits.
std::string sha256_hex(std::string_view bytes);

}  // namespace hadal
