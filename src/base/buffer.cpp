// Anonymous mappings as owned memory.
#include "base/buffer.h"

#include <sys/mman.h>

#include <cstring>
#include <utility>

namespace hadal {

Buffer::Buffer(int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  HADAL_CHECK(p != MAP_FAILED, "no address space for " + std::to_string(bytes) + " bytes");
  data_ = static_cast<char*>(p);
  constexpr int64_t kHugePage = 2 << 20;
  if (bytes >= 4 * kHugePage) madvise(p, bytes, MADV_HUGEPAGE);
}

Buffer::~Buffer() {
  if (data_) munmap(data_, bytes_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Tensor Arena::make(DType dtype, std::initializer_list<int64_t> shape) {
  Tensor t(nullptr, dtype, shape);
  buffers_.emplace_back(t.bytes());
  t.data = buffers_.back().data();
  return t;
}

int64_t Arena::bytes() const {
  int64_t n = 0;
  for (const auto& b : buffers_) n += b.bytes();
  return n;
}

void Arena::poison() {
  for (auto& b : buffers_)
    if (b.data()) std::memset(b.data(), 0xff, b.bytes());
}

}  // namespace hadal
