// Names of tensors: the released ones are the engine's own, those of a transformers conversion are
// derived from them. Source: spec V4 2.5.
#pragma once

#include <string>
#include <vector>

#include "model/config.h"

namespace hadal {

// The names that a transformers conversion may give the V4 tensor of this released name, the newest
// first. Routed experts get their per-expert name (conversions usually pack them, see binder.cpp).
std::vector<std::string> transformers_v4_names(const std::string& released);

// The packed routed experts of one layer as transformers keeps them in memory.
struct PackedExpertNames {
  std::string gate_up, gate_up_scale;  // [E, 2 * inter, C], the gate rows first
  std::string down, down_scale;        // [E, C, inter]
};
PackedExpertNames packed_expert_names(int64_t layer);

// Does the name belong to the draft modules (mtp.* in V4, layers after the last one in V3)?
bool is_draft_name(const Config& config, const std::string& name);

}  // namespace hadal
