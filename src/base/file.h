// Files as the rest of the program needs them: read whole, mapped read-only, or replaced at once.
// Every error is a user error and names the path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace hadal {

// The bytes of a regular file of at most `max_bytes`.
Result<std::string> read_file(const std::string& path, int64_t max_bytes = int64_t{1} << 28);

// The first `bytes` bytes of a regular file, fewer where the file is shorter, and its full size.
struct FileStart {
  std::string bytes;
  int64_t file_bytes = 0;
};
Result<FileStart> read_file_start(const std::string& path, int64_t bytes);

bool file_exists(const std::string& path);

// Writes `parts` one after the other to a temporary file beside `path`, then renames it: `path` is
// either the old file or the whole new one.
Status write_file(const std::string& path, const std::vector<std::span<const std::byte>>& parts);

// A regular file mapped shared and read-only for as long as the object lives.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // Reads [begin, end) from the disk into memory. An unreadable page is an error here, where a
  // later access would end the program.
  Status preload(int64_t begin, int64_t end) const;

 private:
  MappedFile() = default;
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace hadal
