// An NVIDIA GPU through the CUDA runtime, linked statically: the program starts without a driver
// too, and says so when a card is asked for.
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/tuned.h"
#include "kernels/gpu/open_gpu.h"
#include "kernels/gpu/portable.h"

namespace hadal::cuda {

// probe.cu
bool kernels_run();
void read_all(cudaStream_t stream, const void* p, int64_t bytes, unsigned* sum);

#include "kernels/gpu/portable.inc"

namespace {

void expect(cudaError_t e, const char* call) {
  HADAL_CHECK(e == cudaSuccess, std::string("[cuda] ") + call + ": " + cudaGetErrorString(e));
}

class CudaGraph final : public GpuGraph {
 public:
  CudaGraph(cudaGraphExec_t exec, cudaStream_t stream) : exec_(exec), stream_(stream) {}
  ~CudaGraph() override { cudaGraphExecDestroy(exec_); }
  void replay() override { expect(cudaGraphLaunch(exec_, stream_), "graph launch"); }

 private:
  cudaGraphExec_t exec_;
  cudaStream_t stream_;
};

class CudaGpu final : public Gpu {
 public:
  CudaGpu(int index, const std::string& card) : index_(index) {
    name_ = "cuda:" + std::to_string(index) + " (" + card + ")";
    expect(cudaSetDevice(index), "set device");
    expect(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream create");
    expect(cudaStreamCreateWithFlags(&side_, cudaStreamNonBlocking), "stream create");
    for (auto* e : {&forked_, &joined_})
      expect(cudaEventCreateWithFlags(e, cudaEventDisableTiming), "event");
    expect(cudaMallocHost(&staging_, 2 * kStaging), "host memory");
    for (auto& e : staged_) expect(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "event");
  }
  ~CudaGpu() override {
    cudaStreamSynchronize(stream_);
    for (auto& e : staged_) cudaEventDestroy(e);
    cudaFreeHost(staging_);
    for (auto e : {forked_, joined_}) cudaEventDestroy(e);
    cudaStreamDestroy(side_);
    cudaStreamDestroy(stream_);
  }

  std::string name() const override { return name_; }
  GpuStream stream() const override { return stream_; }
  GpuStream side_stream() const override { return side_; }
  void fork() override {
    expect(cudaEventRecord(forked_, stream_), "event record");
    expect(cudaStreamWaitEvent(side_, forked_, 0), "wait for an event");
  }
  void join() override {
    expect(cudaEventRecord(joined_, side_), "event record");
    expect(cudaStreamWaitEvent(stream_, joined_, 0), "wait for an event");
  }
  int64_t memory_bytes() const override {
    size_t free = 0, all = 0;
    expect(cudaMemGetInfo(&free, &all), "memory info");
    return static_cast<int64_t>(free);
  }

  void* allocate(int64_t bytes) override {
    HADAL_CHECK(!capturing_, "[cuda] memory is allocated at load, not while a step is recorded");
    void* p = nullptr;
    if (bytes == 0) bytes = 1;
    cudaError_t e = cudaMalloc(&p, bytes);
    if (e == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // not a fault of later calls
      return nullptr;
    }
    expect(e, "allocate");
    return p;
  }
  void release(void* p) override { expect(cudaFree(p), "free"); }

  // Through two pinned buffers in turn, so that the next piece is gathered while one is copied.
  void upload(void* to, const void* from, int64_t row_bytes, int64_t rows,
              int64_t stride) override {
    if (rows == 1 || stride == row_bytes) {
      row_bytes *= rows;
      rows = 1;
    }
    auto* target = static_cast<char*>(to);
    auto* source = static_cast<const char*>(from);
    if (rows == 1) {
      for (int64_t at = 0; at < row_bytes; at += kStaging) {
        int64_t n = std::min(kStaging, row_bytes - at);
        send(target + at, n, [&](char* b) { std::copy_n(source + at, n, b); });
      }
      return;
    }
    HADAL_CHECK(row_bytes <= kStaging, "[cuda] a row too long to stage");
    int64_t step = kStaging / row_bytes;
    for (int64_t r = 0; r < rows; r += step) {
      int64_t n = std::min(step, rows - r);
      send(target + r * row_bytes, n * row_bytes, [&](char* b) {
        for (int64_t i = 0; i < n; ++i)
          std::copy_n(source + (r + i) * stride, row_bytes, b + i * row_bytes);
      });
    }
  }
  void download(void* to, const void* from, int64_t bytes) override {
    expect(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "download");
    wait();
  }
  void fill(void* p, uint8_t byte, int64_t bytes) override {
    expect(cudaMemsetAsync(p, byte, bytes, stream_), "fill");
  }
  void wait() override { expect(cudaStreamSynchronize(stream_), "wait for the device"); }

  double time_read(const void* p, int64_t bytes) override {
    auto* sum = static_cast<unsigned*>(allocate(sizeof(unsigned)));
    cudaEvent_t begin, end;
    expect(cudaEventCreate(&begin), "event");
    expect(cudaEventCreate(&end), "event");
    expect(cudaEventRecord(begin, stream_), "event record");
    read_all(stream_, p, bytes, sum);
    expect(cudaEventRecord(end, stream_), "event record");
    wait();
    float milliseconds = 0;
    expect(cudaEventElapsedTime(&milliseconds, begin, end), "event time");
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    release(sum);
    return milliseconds * 1e-3;
  }

  void begin_capture() override {
    capturing_ = true;
    expect(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "begin capture");
  }
  std::unique_ptr<GpuGraph> end_capture() override {
    capturing_ = false;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    expect(cudaStreamEndCapture(stream_, &graph), "end capture");
    expect(cudaGraphInstantiate(&exec, graph, 0), "instantiate graph");
    expect(cudaGraphDestroy(graph), "destroy graph");
    expect(cudaGraphUpload(exec, stream_), "upload graph");
    return std::make_unique<CudaGraph>(exec, stream_);
  }

 private:
  static constexpr int64_t kStaging = int64_t{16} << 20;  // bytes of one of the two buffers

  template <class F>
  void send(char* to, int64_t bytes, F&& gather) {
    char* buffer = staging_ + turn_ * kStaging;
    expect(cudaEventSynchronize(staged_[turn_]), "wait for a copy");
    gather(buffer);
    expect(cudaMemcpyAsync(to, buffer, bytes, cudaMemcpyHostToDevice, stream_), "upload");
    expect(cudaEventRecord(staged_[turn_], stream_), "event record");
    turn_ = 1 - turn_;
  }

  int index_;
  std::string name_;
  cudaStream_t stream_ = nullptr, side_ = nullptr;
  cudaEvent_t forked_ = nullptr, joined_ = nullptr;
  char* staging_ = nullptr;
  cudaEvent_t staged_[2] = {};
  int turn_ = 0;
  bool capturing_ = false;
};

}  // namespace

Result<OpenedDevice> open(int index) {
  int count = 0;
  cudaError_t e = cudaGetDeviceCount(&count);
  if (e != cudaSuccess)
    return Error{std::string("no CUDA device can be used (") + cudaGetErrorString(e) +
                 "): install an NVIDIA driver for CUDA 13, or give --device cpu"};
  if (index >= count)
    return Error{"there is no device cuda:" + std::to_string(index) + ": this machine has " +
                 std::to_string(count) + " CUDA device" + (count == 1 ? "" : "s") +
                 ", counted from 0"};
  cudaDeviceProp card;
  expect(cudaGetDeviceProperties(&card, index), "device properties");
  auto gpu = std::make_unique<CudaGpu>(index, card.name);
  Device device;
  device.name = gpu->name();
  device.portable = &portable();
  static constexpr TunedKernels kTuned = {mma_linear, mma_linear_pair, mma_grouped_linear,
                                          mma_batched_linear, mma_batched_linear_transposed};
  if (card.major >= 8) device.tuned = &kTuned;
  device.cuda_arch = card.major * 10 + card.minor;
  if (!kernels_run())
    return Error{gpu->name() + " is of compute capability " + std::to_string(card.major) + "." +
                 std::to_string(card.minor) +
                 ", for which this hadal has no kernels: build it with HADAL_CUDA_ARCHS=" +
                 std::to_string(device.cuda_arch)};
  return OpenedDevice{device, std::move(gpu)};
}

}  // namespace hadal::cuda
