// What the backend asks of a card: whether the kernels of this build run there, how fast it reads.
#include <cuda_runtime.h>

#include <cstdint>

namespace hadal::cuda {
namespace {
__global__ void probe() {}

// Sixteen bytes a thread, eight loads in flight; the sum keeps them from being left out.
__global__ void __launch_bounds__(512) read_kernel(const uint4* p, int64_t n, unsigned* sum) {
  constexpr int kInFlight = 8;
  unsigned total = 0;
  int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += step * kInFlight) {
    uint4 v[kInFlight];
#pragma unroll
    for (int j = 0; j < kInFlight; ++j)
      v[j] = i + j * step < n ? __ldcs(p + i + j * step) : uint4{0, 0, 0, 0};
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) total += v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  if (total == 0x12345678u) *sum = total;
}
}  // namespace

bool kernels_run() {
  cudaFuncAttributes attributes;
  bool there = cudaFuncGetAttributes(&attributes, probe) == cudaSuccess;
  cudaGetLastError();
  return there;
}

void read_all(cudaStream_t stream, const void* p, int64_t bytes, unsigned* sum) {
  constexpr int kBlocks = 132 * 4;
  read_kernel<<<kBlocks, 512, 0, stream>>>(static_cast<const uint4*>(p), bytes / 16, sum);
}

}  // namespace hadal::cuda
