// Weights from the mapped checkpoint to a GPU, as they are stored.
#pragma once

#include "base/gpu.h"
#include "base/status.h"
#include "model/weights.h"

namespace hadal {

// Copies every tensor of `w` into one allocation and makes `w` views of it; returns the owner.
// Nothing is expanded; a view that lies strided in the file is packed, one that several weights
// share is copied once, and the weights of a list (experts, heads, groups) come to lie at equal
// distances, as grouped and batched products want them. progress(done, total) counts bytes.
// Error: the GPU has no room.
Result<GpuBuffer> upload_weights(V4Weights& w, Gpu& gpu, const Progress& progress);
Result<GpuBuffer> upload_weights(V32Weights& w, Gpu& gpu, const Progress& progress);

}  // namespace hadal
