// `hadal logits` against the stored reference logits of the fixtures, in every way of feeding.
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/program.h"
#include "base/safetensors.h"

namespace hadal {
namespace {

const std::string kFixtures = std::string(HADAL_TEST_DATA) + "/fixtures/";

std::unique_ptr<Checkpoint> open_file(const std::string& path) {
  auto file = Checkpoint::open(path);
  EXPECT_TRUE(file.ok()) << (file.ok() ? "" : file.error().message);
  return file.ok() ? std::move(file).value() : nullptr;
}

Tensor tensor(const Checkpoint& file, const std::string& name) {
  auto t = file.find(name);
  EXPECT_TRUE(t.has_value()) << name;
  return t.value_or(Tensor());
}

double largest_difference(const Tensor& a, const Tensor& b) {
  if (a.shape != b.shape || a.dtype != DType::kF32 || b.dtype != DType::kF32) {
    ADD_FAILURE() << "another shape or dtype";
    return INFINITY;
  }
  double largest = 0;
  for (int64_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::fabs(double{*a.at<float>(i / a.shape[1], i % a.shape[1])} -
                                          *b.at<float>(i / b.shape[1], i % b.shape[1])));
  return largest;
}

// Writes the fixture's prompt ids as a JSON list.
std::string ids_file(const TemporaryFolder& folder, const Checkpoint& reference) {
  Tensor ids = tensor(reference, "prompt_ids");
  nlohmann::json list = nlohmann::json::array();
  for (int64_t i = 0; i < ids.size(); ++i) list.push_back(*ids.at<int32_t>(i));
  return folder.write("ids.json", list.dump());
}

class Logits : public testing::TestWithParam<const char*> {};

TEST_P(Logits, EqualTheReference) {
  std::string model = kFixtures + GetParam();
  auto reference = open_file(model + "/reference.safetensors");
  ASSERT_TRUE(reference);
  TemporaryFolder folder;
  std::string ids = ids_file(folder, *reference), out = folder / "out.safetensors";
  Tensor greedy_ids = tensor(*reference, "greedy_ids");
  std::string n = std::to_string(greedy_ids.size());
  for (std::vector<std::string> flags : {std::vector<std::string>{},
                                         {"--chunk", "7"},
                                         {"--chunk", "64", "--decode-from", "20"},
                                         {"--decode-from", "0"}}) {
    flags.insert(flags.begin(), {"logits", model, "--ids", ids, "--numerics", "exact", "--greedy",
                                 n, "--out", out});
    auto o = hadal_program(flags);
    ASSERT_EQ(o.status, 0) << o.err;
    auto file = open_file(out);
    ASSERT_TRUE(file);
    EXPECT_EQ(file->names(), (std::vector<std::string>{"greedy_ids", "greedy_logits", "logits"}));
    EXPECT_LT(largest_difference(tensor(*file, "logits"), tensor(*reference, "prompt_logits")),
              1e-4);
    EXPECT_LT(
        largest_difference(tensor(*file, "greedy_logits"), tensor(*reference, "greedy_logits")),
        1e-4);
    Tensor ours = tensor(*file, "greedy_ids");
    ASSERT_EQ(ours.dtype, DType::kI32);
    ASSERT_EQ(ours.size(), greedy_ids.size());
    for (int64_t i = 0; i < ours.size(); ++i)
      EXPECT_EQ(*ours.at<int32_t>(i), *greedy_ids.at<int32_t>(i)) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Logits, testing::Values("v4-tiny", "v32-tiny-fp8", "v3-tiny"));

TEST(LogitsFile, WithoutGreedyHoldsTheLogitsAlone) {
  TemporaryFolder folder;
  std::string out = folder / "out.safetensors";
  auto o = hadal_program({"logits", kTinyV4, "--ids", "-", "--out", out}, "{\"ids\": [0, 3, 491]}");
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_EQ(o.out, "");
  auto file = open_file(out);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->names(), (std::vector<std::string>{"logits"}));
  Tensor logits = tensor(*file, "logits");
  EXPECT_EQ(logits.shape[0], 3);
  EXPECT_EQ(logits.shape[1], 768);
}

TEST(LogitsFile, WrongInputsGetOneSentenceAndLeaveNoFile) {
  TemporaryFolder folder;
  std::string out = folder / "out.safetensors";
  auto refused = [&](const std::string& ids, std::vector<std::string> flags, const char* part) {
    flags.insert(flags.begin(),
                 {"logits", kTinyV4, "--ids", folder.write("ids.json", ids), "--out", out});
    expect_refused(hadal_program(flags), 1, part);
    EXPECT_FALSE(std::filesystem::exists(out));
  };
  refused("", {}, "must hold a JSON list of token ids");
  refused("{\"tokens\": [1]}", {}, "must hold a JSON list of token ids");
  refused("[]", {}, "holds no token ids");
  refused("[1, -2]", {}, "entry 1 is -2");
  refused("[1.5]", {}, "entry 0 is 1.5");
  refused("[\"a\"]", {}, "entry 0 is \"a\"");
  refused("[99999999999]", {}, "entry 0 is 99999999999");
  refused("[0, 768]", {}, "768");
  refused("[0]", {"--greedy", "-1"}, "--greedy is -1");
  refused("[0]", {"--chunk", "0"}, "--chunk is 0");
  refused("[0]", {"--decode-from", "2"}, "--decode-from is 2");
  refused("[0, 1, 2]", {"--max-model-len", "2"}, "3 ids and 0 greedy tokens do not fit");
  refused("[0]", {"--greedy", "5000"}, "1 ids and 5000 greedy tokens do not fit");
  expect_refused(hadal_program({"logits", kTinyV4, "--ids", folder / "none", "--out", out}), 1,
                 "none");
  std::string ids = folder.write("ids.json", "[0]");
  expect_refused(hadal_program({"logits", folder / "none", "--ids", ids, "--out", out}), 1,
                 "there is no folder");
  expect_refused(hadal_program({"logits", kTinyV4, "--ids", ids, "--out", folder / "no/such/f"}), 1,
                 "no/such/f");
}

}  // namespace
}  // namespace hadal
