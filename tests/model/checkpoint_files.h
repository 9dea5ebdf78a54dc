// Checkpoints for tests: where the fixtures lie, and copies of one that a test breaks on purpose.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
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

// The text between `before` and `after`, from `at` on, which moves behind it.
inline std::string between(const std::string& s, size_t& at, const char* before,
                           const char* after) {
  size_t begin = s.find(before, at) + std::strlen(before), end = s.find(after, begin);
  at = end + std::strlen(after);
  return s.substr(begin, end - begin);
}

inline std::vector<int64_t> numbers(const std::string& list) {
  std::vector<int64_t> all;
  std::istringstream in(list);
  for (std::string n; std::getline(in, n, ',');) all.push_back(std::stoll(n));
  return all;
}

// The headers here are as the safetensors library and write_raw() lay them out.
inline RawTensors read_raw(const std::string& path) {
  std::string file = read_text(path);
  uint64_t length;
  std::memcpy(&length, file.data(), 8);
  std::string header = file.substr(8, length);
  RawTensors tensors;
  for (size_t at = 0; header.find("\"dtype\":\"", at) != header.npos;) {
    std::string name = between(header, at, "\"", "\":{");
    RawTensor& t = tensors[name];
    t.dtype = between(header, at, "\"dtype\":\"", "\"");
    t.shape = numbers(between(header, at, "\"shape\":[", "]"));
    std::vector<int64_t> place = numbers(between(header, at, "\"data_offsets\":[", "]"));
    t.bytes = file.substr(8 + length + place[0], place[1] - place[0]);
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

inline std::string list(const std::vector<int64_t>& numbers) {
  std::string s = "[";
  for (int64_t n : numbers) s.append(s.size() > 1 ? "," : "").append(std::to_string(n));
  return s + "]";
}

// Names must need no escapes.
inline void write_raw(const std::string& path, const RawTensors& tensors) {
  std::string header, data;
  // Eight-byte elements first, so that every tensor is aligned.
  for (int size : {8, 4, 2, 1}) {
    for (const auto& [name, t] : tensors) {
      bool four = t.dtype == "F32" || t.dtype == "I32", two = t.dtype == "BF16" || t.dtype == "F16";
      if (size != (t.dtype == "I64" ? 8 : four ? 4 : two ? 2 : 1)) continue;
      auto begin = static_cast<int64_t>(data.size());
      data += t.bytes;
      header += (header.empty() ? "\"" : ",\"") + name + "\":{\"dtype\":\"" + t.dtype +
                "\",\"shape\":" + list(t.shape) +
                ",\"data_offsets\":" + list({begin, static_cast<int64_t>(data.size())}) + "}";
    }
  }
  header = "{" + header + "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  write_text(path, safetensors_bytes(header, data));
}

}  // namespace hadal::testing
