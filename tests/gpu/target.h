// What the tests of the portable kernels run on: fibers on the CPU, or, with HADAL_TEST_CUDA, the
// first CUDA device. A test calls target::op(on(machine), ...). Kernels see the addresses of Arena
// tensors and of on_device(); on a GPU each such array has a copy at on_host(), which get() and
// set() use. on(machine) sends all of these copies to the device and, when the call it stands in is
// over, waits for the device and takes them back: to a test, memory is one on every target.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <new>
#include <string>
#include <vector>

#include "kernels/gpu/launchers.h"

#ifndef HADAL_TEST_CUDA

#include "kernels/gpu/kl_fiber.h"

namespace hadal {
namespace target = fiber;
}

namespace hadal::reference {

using fiber::Machine;

// Both warp widths, each in order and with threads, blocks and grid size shuffled. What
// ThreadSanitizer finds does not depend on the order, so one each is enough for it.
inline std::vector<Machine> machines() {
#ifdef __SANITIZE_THREAD__
  return {{32, 11, 3}, {64, 12, 2}};
#endif
  return {{32, 0}, {32, 11, 3}, {64, 0}, {64, 12, 2}};
}

inline std::string describe(const Machine& m) {
  return "warp " + std::to_string(m.warp_size) + " seed " + std::to_string(m.seed);
}

inline GpuStream on(Machine& m) { return &m; }

template <class T>
using Vector = std::vector<T>;
template <class T>
T* on_device(T* host) {
  return host;
}
inline const Tensor& on_host(const Tensor& t) { return t; }
inline const Weight& on_host(const Weight& w) { return w; }
inline void add_mirror(void*, size_t, bool) {}
inline void drop_mirror(void*) {}

}  // namespace hadal::reference

#else

namespace hadal {
namespace target = cuda;
}

namespace hadal::reference {

// A GPU has one warp width and its own order: what these say to fibers is not looked at.
struct Machine {
  int warp_size = 32;
  uint32_t seed = 0;
  int64_t max_blocks = 0;
};

inline std::vector<Machine> machines() { return {{}}; }
inline std::string describe(const Machine&) { return "CUDA"; }

class Launch {
 public:
  Launch();
  ~Launch();
  Launch(const Launch&) = delete;
  operator GpuStream() const;
};
inline Launch on(Machine&) { return {}; }

// Device memory of exactly this size beside host memory, so that a memory checker sees each access
// outside. Of an `input` nothing is taken back.
void add_mirror(void* host, size_t bytes, bool input);
void drop_mirror(void* host);
void* find_device(const void* host);
void* find_host(const void* device);

template <class T>
T* on_device(T* host) {
  return static_cast<T*>(find_device(host));
}
inline Tensor on_host(Tensor t) {
  if (!t.empty()) t.data = find_host(t.data);
  return t;
}
inline Weight on_host(Weight w) {
  w.data = on_host(w.data), w.scale = on_host(w.scale);
  return w;
}

// As far aligned as device memory is: launchers look at addresses to choose the width of a copy.
template <class T>
struct MirroredAllocator {
  static constexpr std::align_val_t kAlign{256};
  using value_type = T;
  MirroredAllocator() = default;
  template <class U>
  MirroredAllocator(const MirroredAllocator<U>&) {}
  T* allocate(size_t n) {
    void* host = ::operator new(n * sizeof(T), kAlign);
    add_mirror(host, n * sizeof(T), false);
    return static_cast<T*>(host);
  }
  void deallocate(T* host, size_t) {
    drop_mirror(host);
    ::operator delete(host, kAlign);
  }
  bool operator==(const MirroredAllocator&) const { return true; }
};
template <class T>
using Vector = std::vector<T, MirroredAllocator<T> >;

}  // namespace hadal::reference

#endif

namespace hadal::reference {

// Zeros that kernels only read; on the host only the touched pages take memory.
class SparseMemory {
 public:
  explicit SparseMemory(size_t bytes)
      : host_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)),
        bytes_(bytes) {
    HADAL_CHECK(host_ != MAP_FAILED, "no address space for " + std::to_string(bytes) + " bytes");
    add_mirror(host_, bytes_, true);
  }
  ~SparseMemory() {
    drop_mirror(host_);
    munmap(host_, bytes_);
  }
  SparseMemory(const SparseMemory&) = delete;
  void* data() const { return on_device(host_); }

 private:
  void* host_;
  size_t bytes_;
};

}  // namespace hadal::reference
