// Checkpoints on disk: the index, the shards, the mapping, and the writer. The header of one file
// is parsed in safetensors_header.cpp.
#include "base/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace hadal {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxIndexBytes = int64_t{1} << 28;
constexpr int64_t kPreloadBytes = int64_t{64} << 20;

std::string join(const std::string& folder, const std::string& file) {
  return folder.empty() || folder.back() == '/' ? folder + file : folder + "/" + file;
}

// Tensor name -> file name, sorted by tensor name.
using WeightMap = std::map<std::string, std::string>;

Result<Json> parse_index(const std::string& path, const std::string& text) {
  std::string twice;
  std::set<std::string> seen;
  auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::key && depth == 2 && twice.empty() &&
        !seen.insert(value.get<std::string>()).second) {
      twice = value.get<std::string>();
    }
    if (event == Json::parse_event_t::object_end && depth == 1) seen.clear();
    return true;
  };
  Json index;
  try {
    index = Json::parse(text, watch);
  } catch (const Json::exception&) {
    return Error{path + ": is not valid JSON; download the file again"};
  }
  if (!twice.empty()) return Error{fmt::format("{}: names tensor {} twice", path, twice)};
  return index;
}

Result<WeightMap> read_index(const std::string& path) {
  HADAL_TRY(std::string text, read_file(path, kMaxIndexBytes));
  HADAL_TRY(Json index, parse_index(path, text));
  auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || map == index.end() || !map->is_object()) {
    return Error{path + ": expected an object \"weight_map\" from tensor names to file names"};
  }
  WeightMap weights;
  for (const auto& [name, file] : map->items()) {
    if (!file.is_string()) {
      return Error{fmt::format("{}: tensor {}: expected a file name", path, name)};
    }
    std::string f = file.get<std::string>();
    if (f.empty() || f == "." || f == ".." || f.find('/') != f.npos || f.find('\0') != f.npos) {
      return Error{
          fmt::format("{}: tensor {}: expected a file name in the same folder", path, name)};
    }
    weights[name] = f;
  }
  if (weights.empty()) return Error{path + ": names no tensor"};
  return weights;
}

Result<std::vector<StoredTensor>> read_header(const std::string& path) {
  HADAL_TRY(FileStart first, read_file_start(path, 8));
  HADAL_TRY(int64_t bytes, safetensors_header_bytes(std::as_bytes(std::span(first.bytes)),
                                                    first.file_bytes, path));
  HADAL_TRY(FileStart all, read_file_start(path, bytes));
  return parse_safetensors_header(std::as_bytes(std::span(all.bytes)), all.file_bytes, path);
}

// Adds the tensors of one file. With an index, `expected` are the names it places there.
Status add_file(CheckpointHeaders& headers, const std::string& path, const std::string& index_path,
                const std::set<std::string>* expected) {
  HADAL_TRY(std::vector<StoredTensor> tensors, read_header(path));
  int file = static_cast<int>(headers.files.size());
  size_t found = 0;
  for (auto& t : tensors) {
    if (expected) {
      if (!expected->count(t.name)) {
        return Error{fmt::format("{}: holds tensor {}, which {} does not place there", path, t.name,
                                 index_path)};
      }
      ++found;
    }
    t.file = file;
  }
  if (expected && found != expected->size()) {
    for (const auto& name : *expected) {
      auto it = std::lower_bound(tensors.begin(), tensors.end(), name,
                                 [](const auto& t, const auto& n) { return t.name < n; });
      if (it == tensors.end() || it->name != name) {
        return Error{
            fmt::format("{}: lacks tensor {}, which {} places there", path, name, index_path)};
      }
    }
  }
  headers.files.push_back(path);
  std::move(tensors.begin(), tensors.end(), std::back_inserter(headers.tensors));
  return {};
}

Result<CheckpointHeaders> open_index(const std::string& folder, const std::string& index_path) {
  HADAL_TRY(WeightMap map, read_index(index_path));
  std::map<std::string, std::set<std::string>> shards;
  for (const auto& [name, file] : map) shards[file].insert(name);
  CheckpointHeaders headers;
  for (const auto& [file, names] : shards) {
    std::string path = join(folder, file);
    if (!file_exists(path)) {
      headers.missing_files.push_back(path);
      headers.missing_tensors.insert(headers.missing_tensors.end(), names.begin(), names.end());
      continue;
    }
    HADAL_TRY_STATUS(add_file(headers, path, index_path, &names));
  }
  auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
  std::sort(headers.tensors.begin(), headers.tensors.end(), by_name);
  std::sort(headers.missing_tensors.begin(), headers.missing_tensors.end());
  return headers;
}

}  // namespace

Tensor StoredTensor::view(const void* p) const {
  Tensor t;
  t.data = const_cast<void*>(p);
  t.dtype = dtype;
  t.rank = rank;
  t.shape = shape;
  int64_t s = 1;
  for (int i = rank - 1; i >= 0; --i) {
    t.stride[i] = s;
    s *= shape[i];
  }
  return t;
}

Result<CheckpointHeaders> open_headers(const std::string& location) {
  CheckpointHeaders headers;
  if (location.ends_with(".safetensors")) {
    HADAL_TRY_STATUS(add_file(headers, location, "", nullptr));
    return headers;
  }
  std::string single = join(location, "model.safetensors");
  if (file_exists(single)) {
    HADAL_TRY_STATUS(add_file(headers, single, "", nullptr));
    return headers;
  }
  std::string index = join(location, "model.safetensors.index.json");
  if (file_exists(index)) return open_index(location, index);
  return Error{fmt::format(
      "{}: holds neither model.safetensors nor model.safetensors.index.json; name the folder of a "
      "downloaded checkpoint",
      location)};
}

Result<std::unique_ptr<Checkpoint>> Checkpoint::open(const std::string& location) {
  HADAL_TRY(CheckpointHeaders headers, open_headers(location));
  if (!headers.missing_files.empty()) {
    return Error{fmt::format("{}: is missing ({} of {} shards are); download it first",
                             headers.missing_files[0], headers.missing_files.size(),
                             headers.missing_files.size() + headers.files.size())};
  }
  std::unique_ptr<Checkpoint> c(new Checkpoint);
  for (const auto& path : headers.files) {
    HADAL_TRY(MappedFile file, MappedFile::open(path));
    c->files_.push_back(std::move(file));
  }
  for (const auto& t : headers.tensors) {
    auto bytes = c->files_[t.file].bytes();
    if (t.end > static_cast<int64_t>(bytes.size())) {
      return Error{headers.files[t.file] + ": became shorter while it was opened"};
    }
    const std::byte* p = bytes.data() + t.begin;
    if (t.begin % dtype_size(t.dtype) != 0) {
      // new[] of bytes is aligned for every element type that is stored.
      auto copy = std::make_unique_for_overwrite<std::byte[]>(t.bytes());
      if (t.bytes() > 0) std::memcpy(copy.get(), p, t.bytes());
      p = copy.get();
      c->copies_.push_back(std::move(copy));
    }
    c->tensors_.emplace(t.name, std::pair{t.file, t.view(p)});
  }
  c->headers_ = std::move(headers);
  return c;
}

std::optional<Tensor> Checkpoint::find(const std::string& name) const {
  auto it = tensors_.find(name);
  if (it == tensors_.end()) return std::nullopt;
  return it->second.second;
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  names.reserve(headers_.tensors.size());
  for (const auto& t : headers_.tensors) names.push_back(t.name);
  return names;
}

std::string Checkpoint::where(const std::string& name) const {
  auto it = tensors_.find(name);
  if (it != tensors_.end()) return headers_.files[it->second.first];
  if (headers_.files.size() == 1) return headers_.files[0];
  const std::string& any = headers_.files[0];
  return any.substr(0, any.rfind('/'));
}

int64_t Checkpoint::bytes() const {
  int64_t sum = 0;
  for (const auto& t : headers_.tensors) sum += t.bytes();
  return sum;
}

Status Checkpoint::preload(const std::function<void(int64_t, int64_t)>& progress) const {
  int64_t total = 0, done = 0;
  for (const auto& f : files_) total += static_cast<int64_t>(f.bytes().size());
  for (const auto& f : files_) {
    int64_t size = static_cast<int64_t>(f.bytes().size());
    for (int64_t at = 0; at < size; at += kPreloadBytes) {
      int64_t end = std::min(size, at + kPreloadBytes);
      HADAL_TRY_STATUS(f.preload(at, end));
      done += end - at;
      if (progress) progress(done, total);
    }
  }
  return {};
}

Status write_safetensors(const std::string& path,
                         const std::vector<std::pair<std::string, Tensor>>& tensors) {
  // Wide elements first: then every tensor lies at a multiple of its element size.
  std::vector<const std::pair<std::string, Tensor>*> order;
  for (int64_t size : {8, 4, 2, 1}) {
    for (const auto& t : tensors) {
      if (dtype_size(t.second.dtype) == size) order.push_back(&t);
    }
  }
  Json header = Json::object();
  std::vector<std::span<const std::byte>> parts(2);
  int64_t at = 0;
  for (const auto* entry : order) {
    const auto& [name, t] = *entry;
    HADAL_CHECK(t.packed(), "write_safetensors: " + name + " is strided");
    HADAL_CHECK(!header.contains(name), "write_safetensors: " + name + " twice");
    std::vector<int64_t> shape(t.shape.begin(), t.shape.begin() + t.rank);
    header[name] = {
        {"dtype", dtype_name(t.dtype)}, {"shape", shape}, {"data_offsets", {at, at + t.bytes()}}};
    parts.emplace_back(static_cast<const std::byte*>(t.data), t.bytes());
    at += t.bytes();
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  uint64_t length = text.size();
  parts[0] = std::as_bytes(std::span(&length, 1));
  parts[1] = std::as_bytes(std::span(text));
  return write_file(path, parts);
}

}  // namespace hadal
