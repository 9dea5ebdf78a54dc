// Which candidate serves an op on which device, and what the table says of the others.
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

Kernels chosen(const Device& d, std::vector<std::string> without = {}) {
  Kernels k;
  choose_attention(d, without, k);
  choose_index_score(d, without, k);
  choose_hyper(d, without, k);
  choose_rows(d, without, k);
  return k;
}

const Device kPlain{"plain", false, false, false}, kAvx2{"avx2", true, false, false},
    kAvx512{"avx512", true, true, false}, kAmx{"amx", true, true, true};

TEST(Choice, FollowsTheDevice) {
  Kernels k = chosen(kPlain);
  EXPECT_EQ(k.sparse_attention, ref_sparse_attention);
  EXPECT_EQ(k.mla_attention, ref_mla_attention);
  EXPECT_EQ(k.index_score, ref_index_score);
  EXPECT_EQ(k.hyper_pre, ref_hyper_pre);
  EXPECT_EQ(k.rows, &kRefRows);
  k = chosen(kAvx2);
  EXPECT_EQ(k.sparse_attention, avx2_sparse_attention);
  EXPECT_EQ(k.mla_attention, avx2_mla_attention);
  EXPECT_EQ(k.index_score, avx2_index_score);
  EXPECT_EQ(k.hyper_pre, avx2_hyper_pre);
  EXPECT_EQ(k.rows, &kAvx2Rows);
  k = chosen(kAvx512);
  EXPECT_EQ(k.sparse_attention, avx512_sparse_attention);
  EXPECT_EQ(k.mla_attention, avx512_mla_attention);
  EXPECT_EQ(k.index_score, avx512_index_score);
  EXPECT_EQ(k.hyper_pre, avx512_hyper_pre);
  EXPECT_EQ(k.rows, &kAvx512Rows);
  k = chosen(kAmx);
  EXPECT_EQ(k.sparse_attention, amx_sparse_attention);
  EXPECT_EQ(k.mla_attention, amx_mla_attention);
  EXPECT_EQ(k.index_score, amx_index_score);
}

TEST(Choice, PassesOverWhatIsLeftOut) {
  Kernels k = chosen(kAmx, {"amx_sparse_attention", "avx512_rows"});
  EXPECT_EQ(k.sparse_attention, avx512_sparse_attention);
  EXPECT_EQ(k.mla_attention, amx_mla_attention);
  EXPECT_EQ(k.rows, &kAvx2Rows);
}

TEST(Choice, SaysWhyNotForEveryOtherCandidate) {
  for (const Device& d : {kPlain, kAvx2, kAvx512, kAmx}) {
    Kernels k = chosen(d);
    std::vector<std::string> serving;
    for (const KernelChoice& c : k.table) {
      EXPECT_EQ(c.chosen, c.reason.empty()) << c.candidate;
      if (c.chosen) serving.push_back(c.op);
    }
    EXPECT_EQ(serving, (std::vector<std::string>{"sparse_attention", "mla_attention", "index_score",
                                                 "hyper_pre", "rows"}));
  }
}

}  // namespace
}  // namespace hadal::test
