// The portable GPU kernels' launchers, one list (launchers.inc) for every target they are compiled
// for: hadal::cuda by nvcc, hadal::hip by clang, hadal::fiber on the CPU for tests.
#pragma once

#include <span>

#include "kernels/attn_mla.h"
#include "kernels/attn_sparse.h"
#include "kernels/compress.h"
#include "kernels/hyper.h"
#include "kernels/index_score.h"
#include "kernels/linear.h"
#include "kernels/moe_route.h"
#include "kernels/rope.h"

namespace hadal::cuda {
#include "kernels/gpu/launchers.inc"
}
namespace hadal::hip {
#include "kernels/gpu/launchers.inc"
}
namespace hadal::fiber {
#include "kernels/gpu/launchers.inc"
}
