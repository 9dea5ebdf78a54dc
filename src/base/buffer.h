// Owned memory from the system: zero, aligned to a cache line, touched only when used, with an
// inaccessible page right behind it, so that an overrun ends the program where it happens.
#pragma once

#include <cstdint>
#include <vector>

#include "base/gpu.h"
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

// Tensors that live as long as it: activations of a step, caches, constants. Each lies in memory of
// its own, of the host or of a GPU, allocated at load.
class Arena {
 public:
  Arena() = default;                       // of the host
  explicit Arena(Gpu* gpu) : gpu_(gpu) {}  // null: of the host
  // Allocates nothing: make() returns views of no memory, bytes() says what it would take.
  static Arena measure();

  // Contents: zeros on the host, arbitrary on a GPU.
  Tensor make(DType dtype, std::initializer_list<int64_t> shape);
  // The same with these contents, in host memory of the caller.
  Tensor make_from(DType dtype, std::initializer_list<int64_t> shape, const void* contents);
  int64_t bytes() const { return bytes_; }
  // Fills everything with NaN bit patterns (0xFF bytes): what a step reads before writing it shows.
  void poison();

 private:
  Gpu* gpu_ = nullptr;
  bool measure_ = false;
  int64_t bytes_ = 0;
  std::vector<Buffer> host_;
  std::vector<GpuBuffer> device_;
};

}  // namespace hadal
