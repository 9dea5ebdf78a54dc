// The ops that have one implementation on the CPU; its row loops are chosen by the instruction set
// (row_kernels.h). Each has the contract of the op of the same name in kernels/<op>.h.
#pragma once

#include "kernels/compress.h"
#include "kernels/copy.h"
#include "kernels/embed.h"
#include "kernels/hyper.h"
#include "kernels/index_score.h"
#include "kernels/moe_combine.h"
#include "kernels/moe_route.h"
#include "kernels/norm.h"
#include "kernels/quant.h"
#include "kernels/rope.h"
#include "kernels/topk.h"

namespace hadal::cpu {

decltype(hadal::rms_norm) rms_norm;
decltype(hadal::add_rms_norm) add_rms_norm;
decltype(hadal::layer_norm) layer_norm;
decltype(hadal::quantize_fp8) quantize_fp8;
decltype(hadal::add_rms_norm_fp8) add_rms_norm_fp8;
decltype(hadal::qdq_fp8) qdq_fp8;
decltype(hadal::qdq_fp4) qdq_fp4;
decltype(hadal::hadamard) hadamard;
decltype(hadal::rope_angles) rope_angles;
decltype(hadal::rope) rope;
decltype(hadal::embed) embed;
decltype(hadal::ring_write) ring_write;
decltype(hadal::page_write) page_write;
decltype(hadal::gather_rows) gather_rows;
decltype(hadal::route) route;
decltype(hadal::moe_sort) moe_sort;
decltype(hadal::swiglu) swiglu;
decltype(hadal::moe_combine) moe_combine;
decltype(hadal::compress) compress;
decltype(hadal::compress_rows) compress_rows;
decltype(hadal::index_weights) index_weights;
decltype(hadal::topk) topk;
decltype(hadal::hyper_post) hyper_post;
decltype(hadal::hyper_head) hyper_head;

}  // namespace hadal::cpu
