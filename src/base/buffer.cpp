// Anonymous mappings as owned memory.
#include "base/buffer.h"

#include <sys/mman.h>

#include <cstring>
#include <utility>

namespace hadal {

namespace {

constexpr int64_t kPage = 4096, kLine = 64, kHugePage = 2 << 20;

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

}  // namespace

Buffer::Buffer(int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  int64_t usable = round_up(bytes, kPage);
  mapped_bytes_ = usable + kPage;
  void* p = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  HADAL_CHECK(p != MAP_FAILED, "no address space for " + std::to_string(bytes) + " bytes");
  mapping_ = static_cast<char*>(p);
  HADAL_CHECK(mprotect(mapping_ + usable, kPage, PROT_NONE) == 0, "mprotect of the guard page");
  if (bytes >= 4 * kHugePage) madvise(p, usable, MADV_HUGEPAGE);
  data_ = mapping_ + usable - round_up(bytes, kLine);
}

Buffer::~Buffer() {
  if (mapping_) munmap(mapping_, mapped_bytes_);
}

Buffer::Buffer(Buffer&& other) noexcept { *this = std::move(other); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
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
