// What the AMX matrix products share: tiles 0..3 hold sums.
#pragma once

#include <cstdint>

#include "kernels/cpu/amx_math.h"

namespace hadal {

inline constexpr int64_t kTile = 1024;  // bytes: 16 rows of 32 bf16, or of 16 floats

HADAL_TARGET_BEGIN(HADAL_TARGET_AMX)
namespace {

inline void zero_tiles() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

inline void load_tiles(const float* c) {
  _tile_loadd(0, c, 64);
  _tile_loadd(1, c + 256, 64);
  _tile_loadd(2, c + 512, 64);
  _tile_loadd(3, c + 768, 64);
}

inline void store_tiles(float* c) {
  _tile_stored(0, c, 64);
  _tile_stored(1, c + 256, 64);
  _tile_stored(2, c + 512, 64);
  _tile_stored(3, c + 768, 64);
}

}  // namespace
HADAL_TARGET_END
}  // namespace hadal
