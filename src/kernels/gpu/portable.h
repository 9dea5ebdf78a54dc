// The portable kernels of one kind of GPU as a table, so that the dispatch knows none of them by
// name: cuda::portable(), hip::portable() and fiber::portable() are all there is to link against.
#pragma once

#include "kernels/gpu/launchers.h"

namespace hadal {

// One pointer per launcher of launchers.inc.
struct PortableKernels {
  decltype(fiber::rms_norm)* rms_norm;
  decltype(fiber::add_rms_norm)* add_rms_norm;
  decltype(fiber::layer_norm)* layer_norm;
  decltype(fiber::add_rms_norm_fp8)* add_rms_norm_fp8;
  decltype(fiber::quantize_fp8)* quantize_fp8;
  decltype(fiber::qdq_fp8)* qdq_fp8;
  decltype(fiber::qdq_fp4)* qdq_fp4;
  decltype(fiber::hadamard)* hadamard;
  decltype(fiber::rope_angles)* rope_angles;
  decltype(fiber::rope)* rope;
  decltype(fiber::hyper_pre)* hyper_pre;
  decltype(fiber::hyper_post)* hyper_post;
  decltype(fiber::hyper_post_pre)* hyper_post_pre;
  decltype(fiber::hyper_head)* hyper_head;
  decltype(fiber::hyper_split_workspace)* hyper_split_workspace;
  decltype(fiber::hyper_pre_split)* hyper_pre_split;
  decltype(fiber::hyper_post_pre_split)* hyper_post_pre_split;
  decltype(fiber::hyper_head_split)* hyper_head_split;
  decltype(fiber::embed)* embed;
  decltype(fiber::ring_write)* ring_write;
  decltype(fiber::page_write)* page_write;
  decltype(fiber::gather_rows)* gather_rows;
  decltype(fiber::route)* route;
  decltype(fiber::moe_sort)* moe_sort;
  decltype(fiber::swiglu)* swiglu;
  decltype(fiber::moe_combine)* moe_combine;
  decltype(fiber::compress)* compress;
  decltype(fiber::compress_rows)* compress_rows;
  decltype(fiber::index_weights)* index_weights;
  decltype(fiber::index_score)* index_score;
  decltype(fiber::index_score_few)* index_score_few;
  decltype(fiber::topk)* topk;
  decltype(fiber::topk_few_workspace)* topk_few_workspace;
  decltype(fiber::topk_few)* topk_few;
  decltype(fiber::mla_attention)* mla_attention;
  decltype(fiber::sparse_attention)* sparse_attention;
  decltype(fiber::attention_split_workspace)* attention_split_workspace;
  decltype(fiber::mla_attention_split)* mla_attention_split;
  decltype(fiber::sparse_attention_split)* sparse_attention_split;
  decltype(fiber::mla_attention_matrix)* mla_attention_matrix;
  decltype(fiber::sparse_attention_matrix)* sparse_attention_matrix;
  decltype(fiber::linear)* linear;
  decltype(fiber::grouped_linear)* grouped_linear;
  decltype(fiber::batched_linear)* batched_linear;
  decltype(fiber::batched_linear_transposed)* batched_linear_transposed;
  decltype(fiber::linear_few)* linear_few;
  decltype(fiber::linear_pair_few)* linear_pair_few;
  decltype(fiber::grouped_linear_few)* grouped_linear_few;
  decltype(fiber::batched_linear_few)* batched_linear_few;
  decltype(fiber::batched_linear_transposed_few)* batched_linear_transposed_few;
  decltype(fiber::sample)* sample;
};

namespace fiber {
const PortableKernels& portable();
}

// The op that queues a portable kernel on the context's stream.
template <auto kMember>
struct OnStream;
template <class... A, void (*PortableKernels::*kMember)(GpuStream, A...)>
struct OnStream<kMember> {
  static void launch(Context& ctx, A... a) { (ctx.portable->*kMember)(ctx.stream, a...); }
};

// The same with the context's workspace as the last argument.
template <auto kMember>
struct OnStreamWithWorkspace;
template <class... A, void (*PortableKernels::*kMember)(GpuStream, A...)>
struct OnStreamWithWorkspace<kMember> {
  template <class... B>
  static void launch(Context& ctx, B... b) {
    (ctx.portable->*kMember)(ctx.stream, b..., ctx.workspace);
  }
};

}  // namespace hadal
