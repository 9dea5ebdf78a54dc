// What every op shares: the device, the table of chosen kernels, the context that calls carry.
// An op is one header here (the contract), candidates under cpu/ (and gpu/, cuda/, hip/), and the
// order of preference under dispatch/. The choice is made once, at load, from capability alone.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/gpu.h"
#include "base/tensor.h"
#include "base/threads.h"

namespace hadal {

struct PortableKernels;  // kernels/gpu/portable.h: the portable launchers of one kind of GPU
struct TunedKernels;     // kernels/cuda/tuned.h: those for NVIDIA's tensor cores

// What runs the ops: the CPU, or a GPU. Filled by detect_device() and open_gpu(); tests may clear
// bits.
struct Device {
  std::string name;     // "cpu (avx512_bf16, amx_bf16)"
  bool avx2 = false;    // AVX2 + FMA + F16C
  bool avx512 = false;  // AVX-512 F, BW, DQ, VL, VBMI and BF16
  bool amx = false;     // the above and AMX-BF16 tiles that the system lets this process use
  const PortableKernels* portable = nullptr;  // a GPU's; null: the CPU
  const TunedKernels* tuned = nullptr;        // NVIDIA with tensor cores for bf16
  int cuda_arch = 0;                          // NVIDIA: compute capability, 90 for Hopper; else 0

  bool is_gpu() const { return portable != nullptr; }
};

// The CPU under this process (asks the kernel for AMX tile state where there is any).
Device detect_device();

// One implementation of an op. `supports` answers "" for yes, or the reason for no.
template <class Launch>
struct Candidate {
  const char* name;  // arch_op, as the file is called: "avx512_linear"
  std::string (*supports)(const Device&);
  Launch* launch;
};

// One line of `hadal kernels`.
struct KernelChoice {
  std::string op, candidate;
  bool chosen = false;
  std::string reason;  // why not, where not chosen
};

struct Kernels;  // kernels/dispatch/kernels.h: the chosen launch of each op

// All that an op needs beside its operands. Lives as long as the engine; no allocation in a step.
// On a GPU ops only queue work on the stream: operands are device memory, and what the device has
// computed must not be read before the stream has been waited for.
struct Context {
  ThreadPool& threads;
  const Kernels& kernels;
  const PortableKernels* portable = nullptr;  // of the GPU; null: the CPU
  const TunedKernels* tuned = nullptr;        // of Device
  GpuStream stream = nullptr;
  // Device memory that one op may use while it runs, workspace_bytes() large. [bytes] kI8
  Tensor workspace = {};
  Gpu* gpu = nullptr;  // whose second queue fork() takes; null: there is none
};

// The context for work that may overlap with what `ctx` queues until join(ctx): the two must not
// write what the other reads, and ops that use the workspace stay with `ctx`. One at a time. On the
// CPU work is done where it stands.
inline Context fork(Context& ctx) {
  Context side = ctx;
  if (!ctx.gpu) return side;
  ctx.gpu->fork();
  side.stream = ctx.gpu->side_stream();
  side.workspace = {};
  side.gpu = nullptr;
  return side;
}
inline void join(Context& ctx) {
  if (ctx.gpu) ctx.gpu->join();
}

}  // namespace hadal
