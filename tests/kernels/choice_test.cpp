// Which candidate serves an op on which device, and what the table says of the others.
#include <map>

#include "kernels/cpu/amx_attention.h"
#include "kernels/cpu/amx_index_score.h"
#include "kernels/cpu/avx2_attention.h"
#include "kernels/cpu/avx2_hyper.h"
#include "kernels/cpu/avx2_index_score.h"
#include "kernels/cpu/avx512_attention.h"
#include "kernels/cpu/avx512_hyper.h"
#include "kernels/cpu/avx512_index_score.h"
#include "kernels/cpu/ref_attn_mla.h"
#include "kernels/cpu/ref_attn_sparse.h"
#include "kernels/cpu/ref_hyper.h"
#include "kernels/cpu/ref_index_score.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/gpu/open_gpu.h"
#include "kernels/gpu/portable.h"
#include "kernels/op_rig.h"

namespace hadal::test {
namespace {

const Device kPlain{"plain", false, false, false}, kAvx2{"avx2", true, false, false},
    kAvx512{"avx512", true, true, false}, kAmx{"amx", true, true, true};

TEST(Choice, FollowsTheDevice) {
  Kernels k = choose_kernels(kPlain);
  EXPECT_EQ(k.sparse_attention.few, ref_sparse_attention);
  EXPECT_EQ(k.mla_attention.few, ref_mla_attention);
  EXPECT_EQ(k.index_score.few, ref_index_score);
  EXPECT_EQ(k.hyper_pre.few, ref_hyper_pre);
  EXPECT_EQ(k.rows, &kRefRows);
  k = choose_kernels(kAvx2);
  EXPECT_EQ(k.sparse_attention.few, avx2_sparse_attention);
  EXPECT_EQ(k.mla_attention.few, avx2_mla_attention);
  EXPECT_EQ(k.index_score.few, avx2_index_score);
  EXPECT_EQ(k.hyper_pre.few, avx2_hyper_pre);
  EXPECT_EQ(k.rows, &kAvx2Rows);
  k = choose_kernels(kAvx512);
  EXPECT_EQ(k.sparse_attention.few, avx512_sparse_attention);
  EXPECT_EQ(k.mla_attention.few, avx512_mla_attention);
  EXPECT_EQ(k.index_score.few, avx512_index_score);
  EXPECT_EQ(k.hyper_pre.few, avx512_hyper_pre);
  EXPECT_EQ(k.rows, &kAvx512Rows);
  k = choose_kernels(kAmx);
  EXPECT_EQ(k.sparse_attention.few, amx_sparse_attention);
  EXPECT_EQ(k.mla_attention.few, amx_mla_attention);
  EXPECT_EQ(k.index_score.few, amx_index_score);
}

TEST(Choice, PassesOverWhatIsLeftOut) {
  const std::vector<std::string> without = {"amx_sparse_attention", "avx512_rows"};
  Kernels k = choose_kernels(kAmx, without);
  EXPECT_EQ(k.sparse_attention.few, avx512_sparse_attention);
  EXPECT_EQ(k.mla_attention.few, amx_mla_attention);
  EXPECT_EQ(k.rows, &kAvx2Rows);
}

TEST(Choice, SaysWhyNotForEveryOtherCandidate) {
  for (const Device& d : {kPlain, kAvx2, kAvx512, kAmx}) {
    Kernels k = choose_kernels(d);
    std::map<std::string, int> serving;
    for (const KernelChoice& c : k.table) {
      EXPECT_EQ(c.chosen, c.reason.empty()) << c.candidate;
      serving[c.op] += c.chosen;
    }
    for (const auto& [op, count] : serving) EXPECT_EQ(count, 1) << op;
    EXPECT_EQ(serving.count("rows") + serving.count("hyper_pre_few"), 2u);
    EXPECT_EQ(k.fault, "");
  }
}

TEST(Choice, GpuTakesNoKernelOfTheCpu) {
  auto fiber = open_device("fiber");
  ASSERT_TRUE(fiber.ok());
  Kernels k = choose_kernels(fiber.value().device);
  EXPECT_EQ(k.fault, "");
  for (const KernelChoice& c : k.table) {
    bool of_cpu = c.candidate.starts_with("cpu_") || c.candidate.starts_with("ref_") ||
                  c.candidate.starts_with("avx") || c.candidate.starts_with("amx");
    EXPECT_EQ(of_cpu, c.reason == "for the CPU") << c.candidate;
  }
  EXPECT_NE(k.sparse_attention.few, k.sparse_attention.many);
  EXPECT_EQ(k.rms_norm, OnStream<&PortableKernels::rms_norm>::launch);
}

TEST(Choice, SaysWhereNoKernelIsLeft) {
  const std::vector<std::string> without = {"cpu_rms_norm"};
  EXPECT_EQ(choose_kernels(kAmx, without).fault,
            "no kernel is left for rms_norm: give fewer --without");
}

TEST(Choice, UnknownDevicesAreRefused) {
  for (const char* name : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda0", "fiber:16", "cpu:1"}) {
    auto opened = open_device(name);
    ASSERT_FALSE(opened.ok()) << name;
    EXPECT_NE(opened.error().message.find("give cpu, cuda, or cuda:N"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace hadal::test
