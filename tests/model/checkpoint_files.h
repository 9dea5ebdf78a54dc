// Checkpoints for tests: where the fixtures lie, and copies of one that a test breaks on purpose.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace hadal::testing {

inline std::string fixture(const std::string& name) {
  return std::string(HADAL_TEST_DATA) + "/fixtures/" + name;
}

inline std::vector<std::string> all_checkpoints() {
  std::vector<std::string> folders;
  for (const char* name : {"v3-tiny", "v3-tiny-yarn", "v3-tiny-fp8", "v32-tiny", "v32-tiny-fp8",
                           "v4-tiny", "v4-tiny-yarn-fp8fp4", "v4-odd-hidden"}) {
    folders.push_back(fixture(name));
  }
  for (const char* name : {"tiny-v4", "tiny-v3.2"}) {
    folders.push_back(std::string(HADAL_MODELS) + "/" + name);
  }
  return folders;
}

inline std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// A folder that disappears with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("hadal-test-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  std::string path() const { return path_.string(); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

// One tensor of a safetensors file, held apart from any reader under test.
struct RawTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};
using RawTensors = std::map<std::string, RawTensor>;

inline RawTensors read_raw(const std::string& path) {
  std::string file = read_text(path);
  uint64_t length;
  std::memcpy(&length, file.data(), 8);
  auto header = nlohmann::json::parse(file.substr(8, length));
  RawTensors tensors;
  for (auto& [name, t] : header.items()) {
    if (name == "__metadata__") continue;
    int64_t begin = t["data_offsets"][0], end = t["data_offsets"][1];
    tensors[name] = {t["dtype"], t["shape"], file.substr(8 + length + begin, end - begin)};
  }
  return tensors;
}

// All tensors of a checkpoint folder.
inline RawTensors read_raw_folder(const std::string& folder) {
  RawTensors all;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::string name = entry.path().filename();
    if (!name.starts_with("model") || !name.ends_with(".safetensors")) continue;
    all.merge(read_raw(entry.path()));
  }
  return all;
}

inline std::string safetensors_bytes(const std::string& header, const std::string& data) {
  uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

inline void write_raw(const std::string& path, const RawTensors& tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::string data;
  // Eight-byte elements first, so that every tensor is aligned.
  for (int size : {8, 4, 2, 1}) {
    for (const auto& [name, t] : tensors) {
      int bytes = t.dtype == "I64"                        ? 8
                  : t.dtype == "F32" || t.dtype == "I32"  ? 4
                  : t.dtype == "BF16" || t.dtype == "F16" ? 2
                                                          : 1;
      if (bytes != size) continue;
      header[name] = {{"dtype", t.dtype},
                      {"shape", t.shape},
                      {"data_offsets", {data.size(), data.size() + t.bytes.size()}}};
      data += t.bytes;
    }
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  write_text(path, safetensors_bytes(text, data));
}

}  // namespace hadal::testing
