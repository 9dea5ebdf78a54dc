// A GPU made of fibers: host memory, launches that are done when they return.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "kernels/gpu/kl_fiber.h"
#include "kernels/gpu/open_gpu.h"
#include "kernels/gpu/portable.h"

namespace hadal::fiber {

#include "kernels/gpu/portable.inc"

namespace {

class FiberGpu final : public Gpu {
 public:
  explicit FiberGpu(int warp_size) { machine_.warp_size = warp_size; }

  std::string name() const override { return "fiber:" + std::to_string(machine_.warp_size); }
  int64_t memory_bytes() const override { return int64_t{1} << 40; }
  GpuStream stream() const override { return const_cast<Machine*>(&machine_); }

  GpuStream side_stream() const override { return stream(); }
  void fork() override {}
  void join() override {}

  void* allocate(int64_t bytes) override {
    HADAL_CHECK(!capturing_, "[fiber] memory is allocated at load, not while a step is recorded");
    constexpr int64_t kAlign = 256;
    void* p = std::aligned_alloc(kAlign, (bytes + kAlign - 1) / kAlign * kAlign);
    if (p) std::memset(p, 0xff, bytes);  // arbitrary contents: the worst ones
    return p;
  }
  void release(void* p) override { std::free(p); }

  void upload(void* to, const void* from, int64_t row_bytes, int64_t rows,
              int64_t stride) override {
    for (int64_t i = 0; i < rows; ++i)
      std::memcpy(static_cast<char*>(to) + i * row_bytes,
                  static_cast<const char*>(from) + i * stride, row_bytes);
  }
  void download(void* to, const void* from, int64_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void fill(void* p, uint8_t byte, int64_t bytes) override { std::memset(p, byte, bytes); }
  void wait() override {}
  double time_read(const void* p, int64_t bytes) override {
    auto start = std::chrono::steady_clock::now();
    volatile uint8_t sum = std::accumulate(static_cast<const uint8_t*>(p),
                                           static_cast<const uint8_t*>(p) + bytes, uint8_t{0});
    static_cast<void>(sum);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  void begin_capture() override { capturing_ = true; }
  std::unique_ptr<GpuGraph> end_capture() override {
    capturing_ = false;
    return nullptr;
  }

 private:
  Machine machine_;
  bool capturing_ = false;
};

}  // namespace

Result<OpenedDevice> open(int warp_size) {
  Device device;
  device.portable = &portable();
  auto gpu = std::make_unique<FiberGpu>(warp_size);
  device.name = gpu->name();
  return OpenedDevice{device, std::move(gpu)};
}

}  // namespace hadal::fiber
