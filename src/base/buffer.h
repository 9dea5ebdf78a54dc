// Owned memory from the system: zero, aligned to a cache line, touched only when used, with an
// inaccessible page right behind it, so that an overrun ends the program where it happens.
#pragma once

#include <cstdint>
#include <vector>

#include "base/tensor.h"

namespace hadal {

class Buffer {
 public:
  Buffer() = default;
  // Reserves `bytes` of zeroed memory; aborts where the address space has none left.
  explicit Buffer(int64_t bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  char* data_ = nullptr;
  int64_t bytes_ = 0;
  char* mapping_ = nullptr;
  int64_t mapped_bytes_ = 0;
};

// Tensors for the activations of a step, allocated once at load, each in a Buffer of its own.
class Arena {
 public:
  Tensor make(DType dtype, std::initializer_list<int64_t> shape);
  int64_t bytes() const;
  // Fills everything with NaN bit patterns (0xFF bytes): what a step reads before writing it shows.
  void poison();

 private:
  std::vector<Buffer> buffers_;
};

}  // namespace hadal
