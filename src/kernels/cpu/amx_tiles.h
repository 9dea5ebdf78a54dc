// What the AMX kernels share: tiles of 16 rows of 64 bytes, four of which (0..3) hold sums.
#pragma once

#include <cstdint>

#include "kernels/cpu/target.h"

namespace hadal {

inline constexpr int64_t kTile = 1024;  // bytes: 16 rows of 32 bf16, or of 16 floats

HADAL_TARGET_BEGIN(HADAL_TARGET_AMX)
namespace {

// All eight tiles whole. Of the calling thread, until it calls _tile_release().
inline void configure_tiles() {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } config;
  _tile_loadconfig(&config);
}

// g++ does not know that tile instructions touch memory.
inline void order_memory() { asm volatile("" ::: "memory"); }

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
