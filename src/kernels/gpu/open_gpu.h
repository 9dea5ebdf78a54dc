// From a device's name to what serves it.
#pragma once

#include <memory>
#include <string>

#include "base/gpu.h"
#include "base/status.h"
#include "kernels/op.h"

namespace hadal {

// `gpu` is null for the CPU.
struct OpenedDevice {
  Device device;
  std::unique_ptr<Gpu> gpu;
};

// "cpu"; "cuda" or "cuda:N"; "fiber" or "fiber:64": the GPU's path through the engine with every
// GPU thread a fiber on the CPU (warps of 32 or 64), slow, for tests. Error: an unknown name, no
// driver, no such card, a card that this build has no kernels for.
Result<OpenedDevice> open_device(const std::string& name);

namespace cuda {
// In a build without CUDA: an error that says so.
Result<OpenedDevice> open(int index);
}  // namespace cuda

namespace fiber {
Result<OpenedDevice> open(int warp_size);
}  // namespace fiber

}  // namespace hadal
