// safetensors files, good and broken: every fault is one sentence that names the file and, where
// there is one, the tensor. Broken files are written byte by byte here, without the code under
// test.
#include "base/safetensors.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "model/checkpoint_files.h"

namespace hadal {
namespace {

using namespace hadal::testing;
namespace fs = std::filesystem;

// Expects a sentence that contains all `parts`.
void expect_sentence(const std::string& message, std::initializer_list<std::string> parts) {
  for (const auto& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << "no \"" << part << "\" in: " << message;
  }
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

struct BrokenFile {
  const char* what;
  std::string header, data;
  std::vector<std::string> parts;  // of the sentence, beside the file's name
};

std::string zeros(size_t n) { return std::string(n, '\0'); }

std::vector<BrokenFile> broken_places() {
  std::string a = R"({"a.weight":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  return {
      {"truncated data", a + "}", zeros(7), {"a.weight", "byte 8", "7 bytes", "download it again"}},
      {"bytes after the last", a + "}", zeros(9), {"1 bytes after the last tensor"}},
      {"overlap",
       a + R"(,"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
       zeros(12),
       {"tensor b overlaps tensor a.weight"}},
      {"same place",
       a + R"(,"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       zeros(8),
       {"overlaps"}},
      {"hole",
       a + R"(,"b":{"dtype":"F32","shape":[2],"data_offsets":[12,20]}})",
       zeros(20),
       {"4 bytes before tensor b belong to no tensor"}},
      {"hole at the start",
       R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       zeros(8),
       {"4 bytes before tensor b"}},
      {"out of range",
       a + R"(,"b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
       zeros(8),
       {"tensor b ends at byte 16"}},
      {"offsets backwards",
       R"({"b":{"dtype":"F32","shape":[0],"data_offsets":[8,4]}})",
       zeros(8),
       {"tensor b ends before it begins"}},
      {"negative offset",
       R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}})",
       zeros(8),
       {"tensor b has the negative data offset -8"}},
      {"huge offset",
       R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]}})",
       zeros(8),
       {"tensor b", "18446744073709551615"}},
      {"offset beyond 64 bits",
       R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[0,99999999999999999999]}})",
       zeros(8),
       {"tensor b", "two data_offsets"}},
      {"size differs",
       R"({"b":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})",
       zeros(8),
       {"tensor b takes 8 bytes, expected 12 for F32 [3]"}},
      {"shape overflow",
       R"({"b":{"dtype":"F32","shape":[4294967296,4294967296,1],"data_offsets":[0,0]}})",
       "",
       {"tensor b has an impossible shape"}},
      {"overflow beside a zero",
       R"({"b":{"dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}})",
       "",
       {"tensor b has an impossible shape"}},
  };
}

std::vector<BrokenFile> broken_descriptions() {
  std::string a = R"({"a.weight":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  std::string deep(100000, '[');
  return {
      {"negative dimension",
       R"({"b":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})",
       zeros(8),
       {"tensor b has the negative dimension -2"}},
      {"fractional dimension",
       R"({"b":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})",
       zeros(8),
       {"tensor b has the number 2.0 where its shape was expected"}},
      {"rank 5",
       R"({"b":{"dtype":"I8","shape":[1,1,1,1,8],"data_offsets":[0,8]}})",
       zeros(8),
       {"tensor b has more than 4 dimensions"}},
      {"unknown dtype",
       R"({"b":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})",
       zeros(8),
       {"tensor b has dtype F64, expected one of F32"}},
      {"dtype no string",
       R"({"b":{"dtype":7,"shape":[1],"data_offsets":[0,8]}})",
       zeros(8),
       {"tensor b has a number where its dtype"}},
      {"duplicate name",
       a + R"(,"a.weight":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       zeros(8),
       {"tensor a.weight is there twice"}},
      {"duplicate field",
       R"({"b":{"dtype":"F32","dtype":"I8","shape":[2],"data_offsets":[0,8]}})",
       zeros(8),
       {"tensor b has the field \"dtype\" twice"}},
      {"unknown field",
       R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})",
       zeros(8),
       {"tensor b has the unknown field \"x\""}},
      {"no dtype",
       R"({"b":{"shape":[2],"data_offsets":[0,8]}})",
       zeros(8),
       {"tensor b lacks the field \"dtype\""}},
      {"no shape",
       R"({"b":{"dtype":"F32","data_offsets":[0,8]}})",
       zeros(8),
       {"tensor b lacks the field \"shape\""}},
      {"no offsets",
       R"({"b":{"dtype":"F32","shape":[2]}})",
       zeros(8),
       {"tensor b lacks the field \"data_offsets\""}},
      {"one offset",
       R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[8]}})",
       zeros(8),
       {"tensor b needs two data_offsets"}},
      {"three offsets",
       R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}})",
       zeros(8),
       {"tensor b has more than two data_offsets"}},
      {"tensor no object", R"({"b":[1]})", "", {"tensor b has an array"}},
      {"null tensor", R"({"b":null})", "", {"tensor b has null"}},
      {"metadata no object", R"({"__metadata__":3})", "", {"__metadata__"}},
      {"metadata no text", R"({"__metadata__":{"a":{}}})", "", {"__metadata__"}},
      {"not JSON", "{\"a\":", "", {"not valid JSON at byte"}},
      {"text after the header", "{}x", "", {"not valid JSON at byte"}},
      {"bad UTF-8", "{\"\xff\":1}", "", {"not valid JSON at byte"}},
      {"an array", "[]", "", {"does not begin with '{'"}},
      {"nothing", "", "", {"does not begin with '{'"}},
      {"deep nesting", std::string("{\"a\":").append(deep), "", {"tensor a has an array"}},
  };
}

TEST(Safetensors, EveryBrokenHeaderIsASentence) {
  TemporaryFolder folder;
  std::string path = folder.file("model.safetensors");
  std::vector<BrokenFile> all = broken_places(), more = broken_descriptions();
  all.insert(all.end(), more.begin(), more.end());
  for (const auto& broken : all) {
    SCOPED_TRACE(broken.what);
    write_text(path, safetensors_bytes(broken.header, broken.data));
    for (const std::string& location : {folder.path(), path}) {
      auto checkpoint = Checkpoint::open(location);
      ASSERT_FALSE(checkpoint.ok());
      expect_sentence(checkpoint.error().message, {path});
      for (const auto& part : broken.parts) expect_sentence(checkpoint.error().message, {part});
      auto headers = open_headers(location);
      ASSERT_FALSE(headers.ok());
      EXPECT_EQ(headers.error().message, checkpoint.error().message);
    }
  }
}

TEST(Safetensors, HeaderLengths) {
  TemporaryFolder folder;
  std::string path = folder.file("model.safetensors");
  auto fault = [&](uint64_t length, const std::string& rest) {
    write_text(path, std::string(reinterpret_cast<const char*>(&length), 8) + rest);
    auto checkpoint = Checkpoint::open(path);
    EXPECT_FALSE(checkpoint.ok());
    return checkpoint.ok() ? "" : checkpoint.error().message;
  };
  expect_sentence(fault(3, "{}"), {path, "claims 3 bytes", "has only 10", "download it again"});
  expect_sentence(fault(100'000'001, "{}"), {path, "claims 100000001 bytes", "at most 100000000"});
  expect_sentence(fault(UINT64_MAX, "{}"), {path, "claims 18446744073709551615"});
  expect_sentence(fault(UINT64_MAX - 7, "{}"), {path, "at most"});
  for (size_t n : {0, 1, 7}) {
    write_text(path, zeros(n));
    auto checkpoint = Checkpoint::open(path);
    ASSERT_FALSE(checkpoint.ok());
    expect_sentence(checkpoint.error().message,
                    {path, std::to_string(n).append(" bytes"), "too few"});
  }
}

TEST(Safetensors, FilesThatAreNone) {
  TemporaryFolder folder;
  auto fault = [](const std::string& location) {
    auto checkpoint = Checkpoint::open(location);
    return checkpoint.ok() ? std::string("none") : checkpoint.error().message;
  };
  expect_sentence(fault(folder.path()), {folder.path(), "neither model.safetensors nor"});
  expect_sentence(fault(folder.file("x.safetensors")), {"x.safetensors", "No such file"});
  fs::create_directory(folder.file("model.safetensors"));
  expect_sentence(fault(folder.path()), {"model.safetensors", "not a regular file"});
}

TEST(Safetensors, ReadsEveryDtypeWhereItLies) {
  TemporaryFolder folder;
  std::string path = folder.file("all.safetensors");
  RawTensors raw;
  auto add = [&](const char* dtype, int size) {
    std::string bytes;
    for (int i = 0; i < 6 * size; ++i) bytes += static_cast<char>(17 * i + size);
    raw[dtype] = {dtype, {2, 3}, bytes};
  };
  for (const char* d : {"F32", "I32"}) add(d, 4);
  for (const char* d : {"BF16", "F16"}) add(d, 2);
  for (const char* d : {"F8_E4M3", "F8_E8M0", "I8", "U8"}) add(d, 1);
  add("I64", 8);
  raw["scalar"] = {"F32", {}, std::string("\0\0\x80\x3f", 4)};
  raw["empty"] = {"F32", {0, 5}, ""};
  raw["\xe4\xb8\xad spaced"] = {"I8", {1, 1, 1, 1}, "x"};
  write_raw(path, raw);
  auto checkpoint = Checkpoint::open(path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const Checkpoint& c = *checkpoint.value();
  std::vector<std::string> names = c.names();
  EXPECT_EQ(names.size(), raw.size());
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  for (const auto& [name, t] : raw) {
    auto found = c.find(name);
    ASSERT_TRUE(found) << name;
    EXPECT_EQ(dtype_name(found->dtype), t.dtype == "U8" ? "F8_E8M0" : t.dtype);
    EXPECT_EQ(std::vector<int64_t>(found->shape.begin(), found->shape.begin() + found->rank),
              t.shape);
    ASSERT_EQ(found->bytes(), static_cast<int64_t>(t.bytes.size()));
    EXPECT_EQ(std::string(static_cast<const char*>(found->data), found->bytes()), t.bytes) << name;
    EXPECT_EQ(c.where(name), path);
  }
  EXPECT_EQ(*c.find("scalar")->at<const float>(), 1.0f);
  EXPECT_FALSE(c.find("nowhere"));
}

// A header of odd length, and a byte before the floats: nothing lies at a multiple of its size.
TEST(Safetensors, MisplacedTensorsAreCopiedToAlignedMemory) {
  TemporaryFolder folder;
  std::string path = folder.file("odd.safetensors");
  float floats[3] = {1.5f, -2.0f, 1e-30f};
  int64_t ids[2] = {-5, INT64_MAX};
  std::string data = std::string("z") + std::string(reinterpret_cast<char*>(floats), 12) +
                     std::string(reinterpret_cast<char*>(ids), 16);
  std::string header = R"({"byte":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},)"
                       R"("floats":{"dtype":"F32","shape":[3],"data_offsets":[1,13]},)"
                       R"("ids":{"dtype":"I64","shape":[2],"data_offsets":[13,29]}})";
  for (int pad = 0; pad < 8; ++pad) {
    write_text(path, safetensors_bytes(header + std::string(pad, ' '), data));
    auto checkpoint = Checkpoint::open(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    Tensor f = *checkpoint.value()->find("floats"), i = *checkpoint.value()->find("ids");
    EXPECT_EQ(reinterpret_cast<uintptr_t>(f.data) % 4, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(i.data) % 8, 0u);
    for (int k = 0; k < 3; ++k) EXPECT_EQ(*f.at<const float>(k), floats[k]);
    for (int k = 0; k < 2; ++k) EXPECT_EQ(*i.at<const int64_t>(k), ids[k]);
  }
}

TEST(Safetensors, TruncatedAtEveryLength) {
  TemporaryFolder folder;
  std::string path = folder.file("cut.safetensors");
  RawTensors raw = {{"a", {"F32", {2}, zeros(8)}}, {"b", {"BF16", {3}, zeros(6)}}};
  write_raw(path, raw);
  std::string whole = read_text(path);
  ASSERT_TRUE(Checkpoint::open(path).ok());
  for (size_t n = 0; n < whole.size(); ++n) {
    write_text(path, whole.substr(0, n));
    auto checkpoint = Checkpoint::open(path);
    ASSERT_FALSE(checkpoint.ok()) << n;
    expect_sentence(checkpoint.error().message, {path});
  }
}

class Shards : public ::testing::Test {
 protected:
  Shards() {
    write_raw(one_, {{"a", {"F32", {2}, zeros(8)}}, {"b", {"F32", {1}, zeros(4)}}});
    write_raw(two_, {{"c", {"I8", {3}, "xyz"}}});
    write_index({{"a", "1.safetensors"}, {"b", "1.safetensors"}, {"c", "2.safetensors"}});
  }
  void write_index(const nlohmann::ordered_json& map) {
    write_text(
        index_,
        nlohmann::ordered_json{{"metadata", {{"total_size", 15}}}, {"weight_map", map}}.dump());
  }
  std::string fault() {
    auto checkpoint = Checkpoint::open(folder_.path());
    return checkpoint.ok() ? "none" : checkpoint.error().message;
  }
  TemporaryFolder folder_;
  std::string one_ = folder_.file("1.safetensors"), two_ = folder_.file("2.safetensors");
  std::string index_ = folder_.file("model.safetensors.index.json");
};

TEST_F(Shards, Load) {
  auto checkpoint = Checkpoint::open(folder_.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const Checkpoint& c = *checkpoint.value();
  EXPECT_EQ(c.names(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(c.where("c"), two_);
  EXPECT_EQ(c.where("nowhere"), folder_.path());
  EXPECT_EQ(c.bytes(), 15);
  int64_t last = 0, all = 0;
  ASSERT_TRUE(c.preload([&](int64_t done, int64_t total) {
                 EXPECT_GT(done, last);
                 last = done;
                 all = total;
               }).ok());
  EXPECT_EQ(last, all);
  EXPECT_EQ(all, static_cast<int64_t>(fs::file_size(one_) + fs::file_size(two_)));
}

TEST_F(Shards, MissingShard) {
  fs::remove(two_);
  expect_sentence(fault(), {two_, "is missing (1 of 2 shards are)"});
  auto headers = open_headers(folder_.path());
  ASSERT_TRUE(headers.ok()) << headers.error().message;
  EXPECT_EQ(headers.value().missing_files, std::vector<std::string>{two_});
  EXPECT_EQ(headers.value().missing_tensors, std::vector<std::string>{"c"});
  EXPECT_EQ(headers.value().tensors.size(), 2u);
}

TEST_F(Shards, IndexAndShardsDisagree) {
  write_index({{"a", "1.safetensors"},
               {"b", "1.safetensors"},
               {"c", "2.safetensors"},
               {"d", "2.safetensors"}});
  expect_sentence(fault(), {two_, "lacks tensor d", index_});
  write_index({{"a", "1.safetensors"}, {"c", "2.safetensors"}});
  expect_sentence(fault(), {one_, "holds tensor b", index_});
  // The same name in two shards: the index can place it only once.
  write_index({{"a", "1.safetensors"}, {"b", "1.safetensors"}, {"c", "2.safetensors"}});
  write_raw(two_, {{"a", {"F32", {2}, zeros(8)}}, {"c", {"I8", {3}, "xyz"}}});
  expect_sentence(fault(), {two_, "holds tensor a", index_});
}

TEST_F(Shards, BrokenIndex) {
  write_text(index_, R"({"weight_map":{"a":"1.safetensors","a":"2.safetensors"}})");
  expect_sentence(fault(), {index_, "names tensor a twice"});
  write_text(index_, "{\"weight_map\":");
  expect_sentence(fault(), {index_, "not valid JSON"});
  for (const char* text : {"[]", "3", "{}", R"({"weight_map":[]})", R"({"weight_map":null})"}) {
    write_text(index_, text);
    expect_sentence(fault(), {index_, "expected an object \"weight_map\""});
  }
  write_text(index_, R"({"weight_map":{}})");
  expect_sentence(fault(), {index_, "names no tensor"});
  write_text(index_, R"({"weight_map":{"a":7}})");
  expect_sentence(fault(), {index_, "tensor a", "expected a file name"});
  for (const char* file : {"", "..", "../1.safetensors", "/etc/passwd", "x/1.safetensors"}) {
    write_index({{"a", file}});
    expect_sentence(fault(), {index_, "tensor a", "in the same folder"});
  }
}

TEST_F(Shards, BrokenShard) {
  write_text(two_, read_text(two_) + "x");
  expect_sentence(fault(), {two_, "1 bytes after the last tensor"});
}

TEST(WriteSafetensors, RoundTripAndReplacement) {
  TemporaryFolder folder;
  std::string path = folder.file("out.safetensors");
  std::vector<float> logits = {1, 2, 3, 4, 5, 6};
  std::vector<int32_t> ids = {7, 8, 9};
  std::vector<int64_t> wide = {int64_t{1} << 40};
  write_text(path, "something else");
  Status status = write_safetensors(path, {{"greedy_ids", {ids.data(), DType::kI32, {3}}},
                                           {"logits", {logits.data(), DType::kF32, {2, 3}}},
                                           {"wide", {wide.data(), DType::kI64, {1}}}});
  ASSERT_TRUE(status.ok()) << status.error().message;
  RawTensors raw = read_raw(path);
  ASSERT_EQ(raw.size(), 3u);
  EXPECT_EQ(raw["logits"].dtype, "F32");
  EXPECT_EQ(raw["logits"].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(raw["logits"].bytes, std::string(reinterpret_cast<char*>(logits.data()), 24));
  EXPECT_EQ(raw["greedy_ids"].bytes, std::string(reinterpret_cast<char*>(ids.data()), 12));
  EXPECT_EQ(raw["wide"].bytes, std::string(reinterpret_cast<char*>(wide.data()), 8));
  auto checkpoint = Checkpoint::open(path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(*checkpoint.value()->find("logits")->at<const float>(1, 2), 6.0f);
  // Only the finished file is left.
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);

  Status nowhere = write_safetensors(folder.path() + "/no/out.safetensors", {});
  ASSERT_FALSE(nowhere.ok());
  expect_sentence(nowhere.error().message, {"no/out.safetensors", "cannot create the file"});
}

}  // namespace
}  // namespace hadal
