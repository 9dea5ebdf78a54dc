// One rank's part of a model under tensor parallelism, as shapes. Source: spec V4 2.4, spec
// V3.2 2.4 and 3.7 (the same cut as `hadal plan`).
#pragma once

#include "model/config.h"

namespace hadal {

// The config of rank `rank` of `ranks`: query heads and what belongs to them, index heads, output
// groups, dense and V3's shared MLPs, and the vocabulary are divided; experts are dealt out by id
// while the router still chooses among all; the rest is whole. A model of it computes the rank's
// terms of every sum over ranks. Error: a size that `ranks` does not divide, naming it.
Result<Config> rank_slice(const Config& config, int rank, int ranks);

}  // namespace hadal
