// libFuzzer target: any bytes as a safetensors file. What the parser accepts must lie inside the
// file, without overlaps, and every byte of every tensor must be readable through its view.
#include <cstddef>
#include <cstdint>

#include "base/safetensors.h"

namespace {

using namespace hadal;

// Reads the last element of the view, as code that trusts shape and strides would.
uint8_t last_byte(const Tensor& t) {
  if (t.size() == 0) return 0;
  int64_t index = 0;
  for (int i = 0; i < t.rank; ++i) index += (t.shape[i] - 1) * t.stride[i];
  return static_cast<const uint8_t*>(t.data)[(index + 1) * dtype_size(t.dtype) - 1];
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  auto size_in_file = static_cast<int64_t>(size);
  auto tensors = parse_safetensors_header(bytes, size_in_file, "input");
  if (!tensors.ok()) {
    HADAL_CHECK(tensors.error().message.starts_with("input: "), tensors.error().message);
    HADAL_CHECK(tensors.error().message.find('\n') == std::string::npos, "one sentence");
    return 0;
  }
  int64_t sum = 0;
  volatile uint8_t sink = 0;
  for (const StoredTensor& t : tensors.value()) {
    HADAL_CHECK(t.begin >= 8 && t.begin <= t.end && t.end <= size_in_file, t.name);
    Tensor view = t.view(data + t.begin);
    HADAL_CHECK(view.bytes() == t.bytes() && view.packed(), t.name);
    sink = sink ^ last_byte(view);
    sum += t.bytes();
  }
  auto header = safetensors_header_bytes(bytes, size_in_file, "input");
  HADAL_CHECK(header.ok() && header.value() + sum == size_in_file, "every byte belongs somewhere");
  return 0;
}
