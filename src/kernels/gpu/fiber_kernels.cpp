// The portable kernels for the CPU: every GPU thread a fiber (kl_fiber.h).
#include "kernels/gpu/attention.cu.h"
#include "kernels/gpu/compress.cu.h"
#include "kernels/gpu/copy.cu.h"
#include "kernels/gpu/embed.cu.h"
#include "kernels/gpu/hyper.cu.h"
#include "kernels/gpu/index_score.cu.h"
#include "kernels/gpu/linear.cu.h"
#include "kernels/gpu/moe_combine.cu.h"
#include "kernels/gpu/moe_route.cu.h"
#include "kernels/gpu/norm.cu.h"
#include "kernels/gpu/portable.h"
#include "kernels/gpu/quant.cu.h"
#include "kernels/gpu/rope.cu.h"
#include "kernels/gpu/sample.cu.h"
#include "kernels/gpu/topk.cu.h"

namespace hadal::fiber {
#include "kernels/gpu/portable.inc"
}  // namespace hadal::fiber
