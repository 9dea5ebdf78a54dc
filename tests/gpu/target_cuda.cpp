// The CUDA side of target.h, and main(): each array of a test as its own cudaMalloc, all of them
// copied around every launch on a stream that does not wait for the default one. Where there is no
// CUDA device the program says so and ends well.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <map>

#include "gpu/target.h"

namespace hadal::reference {
namespace {

void check(cudaError_t e, const char* what) {
  HADAL_CHECK(e == cudaSuccess, std::string(what) + ": " + cudaGetErrorString(e));
}

struct Block {
  char *host, *device;
  size_t bytes;
  bool input;
};

struct Mirrors {
  std::map<const char*, Block> by_host, by_device;  // keys: where the block begins
  cudaStream_t stream = nullptr;
};

// Not destroyed: an array may outlive every other static.
Mirrors& mirrors() {
  static auto* all = [] {
    auto* m = new Mirrors;
    check(cudaStreamCreateWithFlags(&m->stream, cudaStreamNonBlocking), "stream");
    return m;
  }();
  return *all;
}

const Block& find(const std::map<const char*, Block>& blocks, const void* address) {
  auto* p = static_cast<const char*>(address);
  auto next = blocks.upper_bound(p);
  HADAL_CHECK(next != blocks.begin(), "no array of a test begins before this address");
  const auto& [begin, block] = *std::prev(next);
  HADAL_CHECK(p < begin + block.bytes, "this address is in no array of a test");
  return block;
}

}  // namespace

void add_mirror(void* host, size_t bytes, bool input) {
  void* device = nullptr;
  check(cudaMalloc(&device, bytes), "cudaMalloc");
  Block b{static_cast<char*>(host), static_cast<char*>(device), bytes, input};
  mirrors().by_host[b.host] = mirrors().by_device[b.device] = b;
}

void drop_mirror(void* host) {
  Block b = find(mirrors().by_host, host);
  mirrors().by_host.erase(b.host);
  mirrors().by_device.erase(b.device);
  check(cudaFree(b.device), "cudaFree");
}

void* find_device(const void* host) {
  const Block& b = find(mirrors().by_host, host);
  return b.device + (static_cast<const char*>(host) - b.host);
}

void* find_host(const void* device) {
  const Block& b = find(mirrors().by_device, device);
  return b.host + (static_cast<const char*>(device) - b.device);
}

Launch::Launch() {
  for (const auto& [begin, b] : mirrors().by_host)
    check(cudaMemcpyAsync(b.device, b.host, b.bytes, cudaMemcpyHostToDevice, mirrors().stream),
          "copy to the device");
}

Launch::~Launch() {
  check(cudaStreamSynchronize(mirrors().stream), "kernel");
  for (const auto& [begin, b] : mirrors().by_host)
    if (!b.input)
      check(cudaMemcpyAsync(b.host, b.device, b.bytes, cudaMemcpyDeviceToHost, mirrors().stream),
            "copy from the device");
  check(cudaStreamSynchronize(mirrors().stream), "copy from the device");
}

Launch::operator GpuStream() const { return mirrors().stream; }

}  // namespace hadal::reference

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  int devices = 0;
  cudaError_t e = cudaGetDeviceCount(&devices);
  // A driver that is not there and one that is too old give the same answer.
  if (e == cudaErrorNoDevice || e == cudaErrorInsufficientDriver) {
    std::printf("no CUDA device: skipped (%s)\n", cudaGetErrorString(e));
    return 0;
  }
  hadal::reference::check(e, "cudaGetDeviceCount");
  cudaDeviceProp device{};
  hadal::reference::check(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  std::printf("%s, compute capability %d.%d\n", device.name, device.major, device.minor);
  return RUN_ALL_TESTS();
}
