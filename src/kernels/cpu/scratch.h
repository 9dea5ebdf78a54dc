// Memory that a kernel keeps between calls: grows to the largest size asked for, never shrinks.
// Used as thread_local, so that a running engine allocates only in its first steps.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "base/status.h"

namespace hadal {

class Scratch {
 public:
  // At least `bytes` bytes, 64-byte aligned; contents are lost when it grows.
  void* grow(int64_t bytes) {
    if (bytes > size_) {
      size_ = (bytes + bytes / 4 + 4095) / 4096 * 4096;
      data_.reset();
      data_.reset(std::aligned_alloc(4096, size_));
      HADAL_CHECK(data_ != nullptr, "[linear] no memory for scratch");
    }
    return data_.get();
  }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<void, Free> data_;
  int64_t size_ = 0;
};

}  // namespace hadal
