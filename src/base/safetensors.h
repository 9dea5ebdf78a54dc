// The safetensors format: 8 bytes of header length, a JSON header, packed tensors without holes.
// Reading is strict; each fault gives one sentence with file, tensor and what was expected.
// A checkpoint is a folder with model.safetensors, or with model.safetensors.index.json and the
// shards that it names. Source: spec V4 2.1, spec V3.2 2.1.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/tensor_source.h"

namespace hadal {

// Largest JSON header that is read, in bytes.
inline constexpr int64_t kMaxSafetensorsHeader = 100'000'000;

// One tensor as a header describes it. U8 is read as F8_E8M0: re-exports store scales so.
struct StoredTensor {
  std::string name;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<int64_t, Tensor::kMaxRank> shape{};
  int64_t begin = 0, end = 0;  // bytes from the start of the file
  int file = 0;                // index into CheckpointHeaders::files

  int64_t bytes() const { return end - begin; }
  // The view of this tensor where its first byte lies at p.
  Tensor view(const void* p) const;
};

// Bytes of the whole header (8 + JSON), from the first 8 bytes of a file of `file_bytes` bytes.
Result<int64_t> safetensors_header_bytes(std::span<const std::byte> start, int64_t file_bytes,
                                         const std::string& path);

// The tensors of a file, sorted by name. `start` holds at least the header; `path` is for messages.
Result<std::vector<StoredTensor>> parse_safetensors_header(std::span<const std::byte> start,
                                                           int64_t file_bytes,
                                                           const std::string& path);

// What the headers of a checkpoint say, where shards may be missing. No tensor data is read.
struct CheckpointHeaders {
  std::vector<std::string> files;            // paths, those that are there
  std::vector<StoredTensor> tensors;         // of those files, sorted by name
  std::vector<std::string> missing_files;    // paths, named by the index but not there
  std::vector<std::string> missing_tensors;  // what the index places in those, sorted
};

// `location` is a checkpoint's folder, or one .safetensors file.
Result<CheckpointHeaders> open_headers(const std::string& location);

// A checkpoint mapped into memory: find() returns views of the mapped bytes. A tensor whose place
// in the file is no multiple of its element size is copied once, at open(), to aligned memory.
class Checkpoint : public TensorSource {
 public:
  // `location` is a checkpoint's folder, or one .safetensors file. All shards must be there.
  static Result<std::unique_ptr<Checkpoint>> open(const std::string& location);

  std::optional<Tensor> find(const std::string& name) const override;
  std::vector<std::string> names() const override;
  std::string where(const std::string& name) const override;

  int64_t bytes() const;  // of all tensors
  // Reads everything from the disk into memory, so that the first tokens need not wait for it.
  // progress(done, total) in bytes; may be empty.
  Status preload(const std::function<void(int64_t, int64_t)>& progress) const;

 private:
  Checkpoint() = default;
  CheckpointHeaders headers_;
  std::vector<MappedFile> files_;
  std::unordered_map<std::string, std::pair<int, Tensor>> tensors_;  // name -> file, view
  std::vector<std::unique_ptr<std::byte[]>> copies_;
};

// Writes packed tensors as one safetensors file, replacing `path` at once.
Status write_safetensors(const std::string& path,
                         const std::vector<std::pair<std::string, Tensor>>& tensors);

}  // namespace hadal
