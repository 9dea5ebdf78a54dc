// Does a model fit? Weights, cache and scratch of each device under tensor parallelism, before
// anything is loaded.
//
// Weights are split as the reference does (spec V4 2.4, spec V3.2 2.4 and 3.7): query heads and
// what belongs to them, dense MLPs and the vocabulary are cut, routed experts are dealt out by id,
// all else is on each device; draft modules are not loaded. The caches hold one latent per token
// for all heads, so every device keeps all of them. With T = min(max(512, batch), batch * context)
// tokens in a step, 2-byte activations, n devices, and index rows scored 64 at a time, scratch is
//   T * 2 * (streams + residual copies: (R + 4) C, query and output of H/n heads,
//            K chosen experts: K (2 I + C), shared or dense MLP: 2 I' + C)
//   + FP8 copies of the left operands, router, indexer and compressor rows, fp32 logits of the
//   batch's last rows.
// The exact terms are in plan.cpp, one per line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/quantity.h"  // parse_memory
#include "base/status.h"
#include "model/config.h"

namespace hadal {

// One tensor-parallel size. Bytes are of each device.
struct PlanRow {
  int devices = 1;
  std::vector<std::string> obstacles;  // sizes that this number of devices does not divide
  int64_t weights = 0, cache = 0, scratch = 0;
  int64_t max_batch = 0;  // sequences of this context that would fit, 0 = not one

  int64_t total() const { return weights + cache + scratch; }
  bool possible() const { return obstacles.empty(); }
};

struct Plan {
  std::string model_type;
  int64_t memory = 0, context = 0, batch = 0;  // as asked; memory in bytes of each device
  int devices = 1;
  std::vector<PlanRow> rows;  // 1, 2, 4, 8 devices

  const PlanRow& chosen() const;
  bool fits(const PlanRow& row) const { return row.possible() && row.total() <= memory; }
};

// Errors: devices other than 1, 2, 4, 8; a context beyond the model's; a batch below 1.
Result<Plan> make_plan(const Config& config, int devices, int64_t memory_bytes, int64_t context,
                       int64_t batch);

std::string to_text(const Plan& plan);
std::string to_json(const Plan& plan);

}  // namespace hadal
