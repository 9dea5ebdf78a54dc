// Whether the kernels of this build can run on the current card.
#include <cuda_runtime.h>

namespace hadal::cuda {
namespace {
__global__ void probe() {}
}  // namespace

bool kernels_run() {
  cudaFuncAttributes attributes;
  bool there = cudaFuncGetAttributes(&attributes, probe) == cudaSuccess;
  cudaGetLastError();
  return there;
}

}  // namespace hadal::cuda
