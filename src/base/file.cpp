// POSIX calls behind base/file.h; each failure becomes one sentence with the system's reason.
#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace hadal {
namespace {

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

Error system_error(const std::string& path, const char* what) {
  return {fmt::format("{}: cannot {}: {}", path, what, std::strerror(errno))};
}

// Opens a regular file for reading and returns its size.
Result<int64_t> open_regular(const std::string& path, Descriptor& d) {
  d.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (d.fd < 0) return system_error(path, "open the file");
  struct stat st {};
  if (::fstat(d.fd, &st) != 0) return system_error(path, "examine the file");
  if (!S_ISREG(st.st_mode)) return Error{path + ": is not a regular file"};
  return static_cast<int64_t>(st.st_size);
}

Result<std::string> read_bytes(const std::string& path, int fd, int64_t bytes) {
  std::string text(bytes, '\0');
  int64_t done = 0;
  while (done < bytes) {
    ssize_t n = ::read(fd, text.data() + done, bytes - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error(path, "read the file");
    if (n == 0) break;
    done += n;
  }
  text.resize(done);
  return text;
}

Status write_bytes(const std::string& path, int fd, std::span<const std::byte> part) {
  while (!part.empty()) {
    ssize_t n = ::write(fd, part.data(), part.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error(path, "write the file");
    part = part.subspan(n);
  }
  return {};
}

}  // namespace

Result<std::string> read_file(const std::string& path, int64_t max_bytes) {
  Descriptor d;
  HADAL_TRY(int64_t size, open_regular(path, d));
  if (size > max_bytes) {
    return Error{fmt::format("{}: has {} bytes, expected at most {}", path, size, max_bytes)};
  }
  return read_bytes(path, d.fd, size);
}

Result<FileStart> read_file_start(const std::string& path, int64_t bytes) {
  Descriptor d;
  HADAL_TRY(int64_t size, open_regular(path, d));
  HADAL_TRY(std::string text, read_bytes(path, d.fd, std::min(bytes, size)));
  return FileStart{std::move(text), size};
}

bool file_exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

Status write_file(const std::string& path, const std::vector<std::span<const std::byte>>& parts) {
  std::string temporary = fmt::format("{}.{}.part", path, ::getpid());
  Descriptor d;
  d.fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (d.fd < 0) return system_error(temporary, "create the file");
  Status status;
  for (const auto& part : parts) {
    status = write_bytes(temporary, d.fd, part);
    if (!status.ok()) break;
  }
  if (status.ok() && ::rename(temporary.c_str(), path.c_str()) != 0) {
    status = system_error(path, "replace the file");
  }
  if (!status.ok()) ::unlink(temporary.c_str());
  return status;
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  Descriptor d;
  HADAL_TRY(int64_t size, open_regular(path, d));
  MappedFile file;
  file.path_ = path;
  if (size > 0) {
    void* p = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, d.fd, 0);
    if (p == MAP_FAILED) return system_error(path, "map the file into memory");
    file.data_ = static_cast<const std::byte*>(p);
    file.size_ = size;
  }
  return file;
}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

Status MappedFile::preload(int64_t begin, int64_t end) const {
  int64_t page = ::sysconf(_SC_PAGESIZE);
  begin = begin / page * page;
  end = std::min<int64_t>(end, size_);
  if (begin >= end) return {};
  auto* start = const_cast<std::byte*>(data_) + begin;
  if (::madvise(start, end - begin, MADV_POPULATE_READ) == 0) return {};
  // Kernels before 5.14 do not know the call; there the pages are read when they are first used.
  if (errno == EINVAL) {
    ::madvise(start, end - begin, MADV_WILLNEED);
    return {};
  }
  return system_error(path_, "read the file (is the disk or the network share still there?)");
}

}  // namespace hadal
