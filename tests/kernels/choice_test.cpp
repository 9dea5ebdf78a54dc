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
#include "kernels/op_rig.h"

namespace hadal::test {
namespace {

const Device kPlain{"plain", false, false, false}, kAvx2{"avx2", true, false, false},
    kAvx512{"avx512", true, true, false}, kAmx{"amx", true, true, true};

TEST(Choice, FollowsTheDevice) {
  Kernels k = choose_kernels(kPlain);
  EXPECT_EQ(k.sparse_attention, ref_sparse_attention);
  EXPECT_EQ(k.mla_attention, ref_mla_attention);
  EXPECT_EQ(k.index_score, ref_index_score);
  EXPECT_EQ(k.hyper_pre, ref_hyper_pre);
  EXPECT_EQ(k.rows, &kRefRows);
  k = choose_kernels(kAvx2);
  EXPECT_EQ(k.sparse_attention, avx2_sparse_attention);
  EXPECT_EQ(k.mla_attention, avx2_mla_attention);
  EXPECT_EQ(k.index_score, avx2_index_score);
  EXPECT_EQ(k.hyper_pre, avx2_hyper_pre);
  EXPECT_EQ(k.rows, &kAvx2Rows);
  k = choose_kernels(kAvx512);
  EXPECT_EQ(k.sparse_attention, avx512_sparse_attention);
  EXPECT_EQ(k.mla_attention, avx512_mla_attention);
  EXPECT_EQ(k.index_score, avx512_index_score);
  EXPECT_EQ(k.hyper_pre, avx512_hyper_pre);
  EXPECT_EQ(k.rows, &kAvx512Rows);
  k = choose_kernels(kAmx);
  EXPECT_EQ(k.sparse_attention, amx_sparse_attention);
  EXPECT_EQ(k.mla_attention, amx_mla_attention);
  EXPECT_EQ(k.index_score, amx_index_score);
}

TEST(Choice, PassesOverWhatIsLeftOut) {
  const std::vector<std::string> without = {"amx_sparse_attention", "avx512_rows"};
  Kernels k = choose_kernels(kAmx, without);
  EXPECT_EQ(k.sparse_attention, avx512_sparse_attention);
  EXPECT_EQ(k.mla_attention, amx_mla_attention);
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
    EXPECT_EQ(serving.count("rows") + serving.count("hyper_pre"), 2u);
  }
}

}  // namespace
}  // namespace hadal::test
