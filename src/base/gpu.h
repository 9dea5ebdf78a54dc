// A GPU as the engine sees it: memory, one queue of work, captured graphs. Backends:
// kernels/cuda/cuda_gpu.cpp, kernels/gpu/fiber_gpu.cpp. A fault of the device or the driver during
// work is not recoverable: it ends the program with the call's name and the driver's words.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace hadal {

using GpuStream = void*;  // cudaStream_t, hipStream_t, or the fiber::Machine* to run on

// Work that was recorded once and can be queued again as a whole.
class GpuGraph {
 public:
  virtual ~GpuGraph() = default;
  virtual void replay() = 0;
};

class Gpu {
 public:
  virtual ~Gpu() = default;

  virtual std::string name() const = 0;      // "cuda:0 (NVIDIA H200)"
  virtual int64_t memory_bytes() const = 0;  // free now
  virtual GpuStream stream() const = 0;      // all work of this object goes there, in order

  // A second queue: what is queued there between fork() and join() waits for all work before the
  // fork, may overlap with what stream() gets in between, and is waited for by all after the join.
  virtual GpuStream side_stream() const = 0;
  virtual void fork() = 0;
  virtual void join() = 0;

  // Aligned to 256 bytes, contents arbitrary; null where there is no room.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* p) = 0;

  // Queues a copy of `rows` rows of `row_bytes` bytes, `stride` bytes apart on the host, packed on
  // the device. `from` may be changed when this returns.
  virtual void upload(void* to, const void* from, int64_t row_bytes, int64_t rows = 1,
                      int64_t stride = 0) = 0;
  // Waits for all queued work, then for the copy.
  virtual void download(void* to, const void* from, int64_t bytes) = 0;
  virtual void fill(void* p, uint8_t byte, int64_t bytes) = 0;
  virtual void wait() = 0;
  // Seconds that the device takes to read `bytes` at p once; waits.
  virtual double time_read(const void* p, int64_t bytes) = 0;

  // Between the two, queued work is recorded instead of run; nothing may be allocated. Null where
  // the backend cannot record: then it ran.
  virtual void begin_capture() = 0;
  virtual std::unique_ptr<GpuGraph> end_capture() = 0;
};

// Owned memory of a GPU.
class GpuBuffer {
 public:
  GpuBuffer() = default;
  GpuBuffer(Gpu& gpu, int64_t bytes) : gpu_(&gpu), data_(gpu.allocate(bytes)), bytes_(bytes) {}
  ~GpuBuffer() {
    if (data_) gpu_->release(data_);
  }
  GpuBuffer(GpuBuffer&& other) noexcept { *this = std::move(other); }
  GpuBuffer& operator=(GpuBuffer&& other) noexcept {
    std::swap(gpu_, other.gpu_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  char* data() const { return static_cast<char*>(data_); }  // null: there was no room
  int64_t bytes() const { return bytes_; }

 private:
  Gpu* gpu_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace hadal
