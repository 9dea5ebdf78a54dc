// The names of devices.
#include "kernels/gpu/open_gpu.h"

#include <charconv>

namespace hadal {
namespace {

// The number after the colon of "kind:number", `missing` where there is none, -1 for nonsense.
int number_after(const std::string& name, size_t kind, int missing) {
  if (name.size() == kind) return missing;
  int n = -1;
  const char* end = name.data() + name.size();
  auto [at, fault] = std::from_chars(name.data() + kind + 1, end, n);
  return name[kind] == ':' && fault == std::errc() && at == end ? n : -1;
}

}  // namespace

Result<OpenedDevice> open_device(const std::string& name) {
  if (name == "cpu") return OpenedDevice{detect_device(), nullptr};
  if (name.starts_with("cuda"))
    if (int n = number_after(name, 4, 0); n >= 0) return cuda::open(n);
  if (name.starts_with("fiber"))
    if (int n = number_after(name, 5, 32); n == 32 || n == 64) return fiber::open(n);
  return Error{"there is no device '" + name + "': give cpu, cuda, or cuda:N for card N"};
}

}  // namespace hadal
