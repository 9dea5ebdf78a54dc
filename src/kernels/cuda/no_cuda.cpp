// Stands in for cuda_gpu.cpp where the build found no CUDA.
#include "kernels/gpu/open_gpu.h"

namespace hadal::cuda {

Result<OpenedDevice> open(int) {
  return Error{
      "this hadal was built without CUDA: build it where nvcc is on the PATH (cmake prints what it "
      "found), or give --device cpu"};
}

}  // namespace hadal::cuda
