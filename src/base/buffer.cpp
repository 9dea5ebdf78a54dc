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

Arena Arena::measure() {
  Arena a;
  a.measure_ = true;
  return a;
}

Tensor Arena::make(DType dtype, std::initializer_list<int64_t> shape) {
  Tensor t(nullptr, dtype, shape);
  bytes_ += t.bytes();
  if (measure_) return t;
  if (gpu_) {
    device_.emplace_back(*gpu_, t.bytes());
    t.data = device_.back().data();
    HADAL_CHECK(t.data || t.bytes() == 0, gpu_->name() + " has no room for " + t.describe());
  } else {
    host_.emplace_back(t.bytes());
    t.data = host_.back().data();
  }
  return t;
}

Tensor Arena::make_from(DType dtype, std::initializer_list<int64_t> shape, const void* contents) {
  Tensor t = make(dtype, shape);
  if (t.empty()) return t;
  gpu_ ? gpu_->upload(t.data, contents, t.bytes())
       : static_cast<void>(std::memcpy(t.data, contents, t.bytes()));
  return t;
}

void Arena::poison() {
  for (auto& b : host_)
    if (b.data()) std::memset(b.data(), 0xff, b.bytes());
  for (auto& b : device_)
    if (b.data()) gpu_->fill(b.data(), 0xff, b.bytes());
}

}  // namespace hadal
