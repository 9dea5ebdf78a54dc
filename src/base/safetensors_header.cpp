// The JSON header of one safetensors file, read event by event: nothing but the one legal structure
// passes, so hostile input costs no more memory than its own size.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/safetensors.h"

namespace hadal {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are used as they lie");

constexpr std::pair<const char*, DType> kTags[] = {
    {"F32", DType::kF32},        {"BF16", DType::kBF16},      {"F16", DType::kF16},
    {"F8_E4M3", DType::kF8E4M3}, {"F8_E8M0", DType::kF8E8M0}, {"U8", DType::kF8E8M0},
    {"I8", DType::kI8},          {"I32", DType::kI32},        {"I64", DType::kI64},
};

// A name from the file as a message may show it.
std::string shown(const std::string& name) {
  std::string s = name.substr(0, 120);
  for (char& c : s) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return s.size() < name.size() ? s + "..." : s;
}

class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(std::string path) : path_(std::move(path)) {}

  std::vector<StoredTensor> tensors;
  std::string error;

  bool start_object(size_t) override {
    switch (at_) {
      case At::kStart:
        at_ = At::kName;
        return true;
      case At::kMetadataValue:
        at_ = At::kMetadataName;
        return true;
      case At::kTensor:
        at_ = At::kField;
        return true;
      default:
        return unexpected("an object");
    }
  }
  bool end_object() override {
    switch (at_) {
      case At::kName:
        at_ = At::kEnd;
        return true;
      case At::kMetadataName:
        at_ = At::kName;
        return true;
      case At::kField:
        at_ = At::kName;
        return finish_tensor();
      default:
        return unexpected("the end of an object");
    }
  }
  bool key(string_t& name) override {
    if (at_ == At::kMetadataName) {
      at_ = At::kMetadataText;
      return true;
    }
    if (at_ == At::kName) return start_tensor(name);
    int field = name == "dtype" ? 0 : name == "shape" ? 1 : name == "data_offsets" ? 2 : -1;
    if (field < 0) return fail(fmt::format("has the unknown field \"{}\"", shown(name)));
    if (seen_ & (1 << field)) return fail(fmt::format("has the field \"{}\" twice", name));
    seen_ |= 1 << field;
    at_ = field == 0 ? At::kDtype : field == 1 ? At::kShape : At::kOffsets;
    return true;
  }
  bool string(string_t& text) override {
    if (at_ == At::kMetadataText) {
      at_ = At::kMetadataName;
      return true;
    }
    if (at_ != At::kDtype) return unexpected("a string");
    at_ = At::kField;
    for (auto [tag, dtype] : kTags) {
      if (text == tag) {
        tensors.back().dtype = dtype;
        return true;
      }
    }
    return fail(
        fmt::format("has dtype {}, expected one of F32, BF16, F16, F8_E4M3, F8_E8M0, U8, "
                    "I8, I32, I64",
                    shown(text)));
  }
  bool start_array(size_t) override {
    if (at_ == At::kShape)
      at_ = At::kDimension;
    else if (at_ == At::kOffsets)
      at_ = At::kOffset;
    else
      return unexpected("an array");
    return true;
  }
  bool end_array() override {
    if (at_ == At::kOffset && offsets_ != 2) return fail("needs two data_offsets");
    if (at_ != At::kDimension && at_ != At::kOffset) return unexpected("the end of an array");
    at_ = At::kField;
    return true;
  }
  bool number_unsigned(number_unsigned_t n) override {
    if (n > static_cast<uint64_t>(INT64_MAX)) {
      return fail(fmt::format("has the impossible number {}", n));
    }
    int64_t v = static_cast<int64_t>(n);
    StoredTensor* t = tensors.empty() ? nullptr : &tensors.back();
    if (at_ == At::kDimension) {
      if (t->rank == Tensor::kMaxRank) {
        return fail(fmt::format("has more than {} dimensions", Tensor::kMaxRank));
      }
      t->shape[t->rank++] = v;
      return true;
    }
    if (at_ == At::kOffset && offsets_ < 2) {
      (offsets_++ == 0 ? t->begin : t->end) = v;
      return true;
    }
    return at_ == At::kOffset ? fail("has more than two data_offsets") : unexpected("a number");
  }
  bool number_integer(number_integer_t n) override {
    if (at_ != At::kDimension && at_ != At::kOffset) return unexpected("a number");
    return fail(fmt::format("has the negative {} {}",
                            at_ == At::kDimension ? "dimension" : "data offset", n));
  }
  bool number_float(number_float_t, const string_t& s) override {
    return unexpected("the number " + shown(s));
  }
  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a truth value"); }
  bool binary(binary_t&) override { return unexpected("binary data"); }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    if (error.empty()) {
      error = fmt::format("{}: the header is not valid JSON at byte {}; download the file again",
                          path_, position);
    }
    return false;
  }

 private:
  enum class At {
    kStart,          // before the outer object
    kName,           // a tensor's name or the end
    kTensor,         // a tensor's object
    kField,          // a field's name or the end of a tensor
    kDtype,          // the dtype's string
    kShape,          // the shape's array
    kDimension,      // a dimension or the end of the shape
    kOffsets,        // the array of offsets
    kOffset,         // an offset or the end
    kMetadataValue,  // the object of free texts
    kMetadataName,
    kMetadataText,
    kEnd,
  };

  bool fail(const std::string& what) {
    bool inside = !tensors.empty() && at_ != At::kStart && at_ != At::kEnd;
    error = inside ? fmt::format("{}: tensor {} {}", path_, shown(tensors.back().name), what)
                   : fmt::format("{}: the header {}", path_, what);
    return false;
  }
  bool unexpected(const std::string& what) {
    bool metadata = at_ == At::kMetadataValue || at_ == At::kMetadataText;
    if (metadata || tensors.empty() || at_ == At::kStart || at_ == At::kEnd) {
      error = fmt::format("{}: the header has {} where {} was expected", path_, what,
                          metadata ? "an object of texts in __metadata__" : "an object of tensors");
      return false;
    }
    const char* wanted = at_ == At::kDtype                            ? "its dtype as a string"
                         : at_ == At::kShape || at_ == At::kDimension ? "its shape"
                         : at_ == At::kOffsets || at_ == At::kOffset  ? "its two data_offsets"
                                                                      : "its description";
    return fail(fmt::format("has {} where {} was expected", what, wanted));
  }
  bool start_tensor(const std::string& name) {
    if (!names_.insert(name).second) {
      error = fmt::format("{}: tensor {} is there twice", path_, shown(name));
      return false;
    }
    if (name == "__metadata__") {
      at_ = At::kMetadataValue;
      return true;
    }
    tensors.emplace_back().name = name;
    seen_ = offsets_ = 0;
    at_ = At::kTensor;
    return true;
  }
  bool finish_tensor() {
    if (seen_ == 7) return true;
    return fail(fmt::format("lacks the field \"{}\"", !(seen_ & 1)   ? "dtype"
                                                      : !(seen_ & 2) ? "shape"
                                                                     : "data_offsets"));
  }

  std::string path_;
  At at_ = At::kStart;
  int seen_ = 0, offsets_ = 0;
  std::unordered_set<std::string> names_;
};

// shape x dtype in bytes, or nothing where that exceeds 63 bits.
std::optional<int64_t> shape_bytes(const StoredTensor& t) {
  // A zero dimension makes any product zero, but its factors must still be honest numbers.
  int64_t n = dtype_size(t.dtype);
  bool zero = false;
  for (int i = 0; i < t.rank; ++i) {
    zero |= t.shape[i] == 0;
    if (t.shape[i] != 0 && __builtin_mul_overflow(n, t.shape[i], &n)) return std::nullopt;
  }
  return zero ? 0 : n;
}

Status check_place(const StoredTensor& t, int64_t data_bytes, const std::string& path) {
  auto bytes = shape_bytes(t);
  if (!bytes) {
    return Error{fmt::format("{}: tensor {} has an impossible shape: [{}]", path, shown(t.name),
                             fmt::join(t.shape.begin(), t.shape.begin() + t.rank, ", "))};
  }
  if (t.begin > t.end) {
    return Error{fmt::format("{}: tensor {} ends before it begins: data_offsets [{}, {}]", path,
                             shown(t.name), t.begin, t.end)};
  }
  if (t.end > data_bytes) {
    return Error{fmt::format(
        "{}: tensor {} ends at byte {} of the data, but the file holds only {} bytes of data; the "
        "file is cut off or damaged, download it again",
        path, shown(t.name), t.end, data_bytes)};
  }
  if (t.end - t.begin != *bytes) {
    return Error{fmt::format("{}: tensor {} takes {} bytes, expected {} for {}", path,
                             shown(t.name), t.end - t.begin, *bytes, t.view(nullptr).describe())};
  }
  return {};
}

// The format allows neither holes nor overlaps nor anything after the last tensor.
Status check_packing(std::vector<StoredTensor>& tensors, int64_t data_bytes,
                     const std::string& path) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  const StoredTensor* last = nullptr;
  for (const auto& t : tensors) {
    int64_t expected = last ? last->end : 0;
    if (t.begin < expected) {
      return Error{
          fmt::format("{}: tensor {} overlaps tensor {}", path, shown(t.name), shown(last->name))};
    }
    if (t.begin > expected) {
      return Error{fmt::format("{}: {} bytes before tensor {} belong to no tensor", path,
                               t.begin - expected, shown(t.name))};
    }
    last = &t;
  }
  int64_t end = last ? last->end : 0;
  if (end != data_bytes) {
    return Error{fmt::format("{}: {} bytes after the last tensor belong to no tensor", path,
                             data_bytes - end)};
  }
  return {};
}

}  // namespace

Result<int64_t> safetensors_header_bytes(std::span<const std::byte> start, int64_t file_bytes,
                                         const std::string& path) {
  if (start.size() < 8 || file_bytes < 8) {
    return Error{fmt::format("{}: has {} bytes, too few for a safetensors file", path, file_bytes)};
  }
  uint64_t length;
  std::memcpy(&length, start.data(), 8);
  if (length > static_cast<uint64_t>(kMaxSafetensorsHeader)) {
    return Error{
        fmt::format("{}: the header claims {} bytes, expected at most {}; this is no "
                    "safetensors file, or a damaged one",
                    path, length, kMaxSafetensorsHeader)};
  }
  int64_t bytes = 8 + static_cast<int64_t>(length);
  if (bytes > file_bytes) {
    return Error{
        fmt::format("{}: the header claims {} bytes, but the file has only {}; it is cut "
                    "off or damaged, download it again",
                    path, length, file_bytes)};
  }
  return bytes;
}

Result<std::vector<StoredTensor>> parse_safetensors_header(std::span<const std::byte> start,
                                                           int64_t file_bytes,
                                                           const std::string& path) {
  HADAL_TRY(int64_t header_bytes, safetensors_header_bytes(start, file_bytes, path));
  if (static_cast<int64_t>(start.size()) < header_bytes) {
    return Error{path + ": became shorter while it was read"};
  }
  const char* text = reinterpret_cast<const char*>(start.data()) + 8;
  const char* text_end = text + (header_bytes - 8);
  if (text == text_end || *text != '{') {
    return Error{path + ": the header does not begin with '{'; this is no safetensors file"};
  }
  HeaderReader reader(path);
  if (!nlohmann::json::sax_parse(text, text_end, &reader)) return Error{reader.error};
  int64_t data_bytes = file_bytes - header_bytes;
  for (const auto& t : reader.tensors) HADAL_TRY_STATUS(check_place(t, data_bytes, path));
  HADAL_TRY_STATUS(check_packing(reader.tensors, data_bytes, path));
  for (auto& t : reader.tensors) {
    t.begin += header_bytes;
    t.end += header_bytes;
  }
  std::sort(reader.tensors.begin(), reader.tensors.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return std::move(reader.tensors);
}

}  // namespace hadal
