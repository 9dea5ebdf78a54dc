// What the CPU under this process can run, as the tuned kernels need it.
#include "kernels/op.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace hadal {
namespace {

#if defined(__x86_64__)
// Linux hands out the 8 KiB of tile state only to processes that ask for it.
bool request_amx_tiles() {
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  if ((d & (kAmxBf16 | kAmxTile)) != (kAmxBf16 | kAmxTile)) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

}  // namespace

Device detect_device() {
  Device device;
#if defined(__x86_64__)
  __builtin_cpu_init();
  device.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                __builtin_cpu_supports("f16c");
  device.avx512 = device.avx2 && __builtin_cpu_supports("avx512f") &&
                  __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
                  __builtin_cpu_supports("avx512bf16");
  device.amx = device.avx512 && request_amx_tiles();
#endif
  device.name = device.amx      ? "cpu (avx512_bf16, amx_bf16)"
                : device.avx512 ? "cpu (avx512_bf16)"
                : device.avx2   ? "cpu (avx2)"
                                : "cpu (scalar)";
  return device;
}

}  // namespace hadal
