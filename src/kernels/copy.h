// Rows into caches. Pure copies between equal dtypes; independent of T.
#pragma once

#include "kernels/batch.h"
#include "kernels/op.h"

namespace hadal {

// Keeps the step's last rows: ring[slot, p mod capacity] = step row of p, for the last
// min(rows, capacity) positions of each sequence. step [T, D], ring [slots, capacity, D].
void ring_write(Context& ctx, const Batch& batch, const Tensor& step, const Tensor& ring);

// pool entry p of each row's sequence = rows[t].   rows [T, D], pool [P, page_size, D].
void page_write(Context& ctx, const Batch& batch, const Tensor& rows, const PageTable& table,
                const Tensor& pool);

// out[i] = x[rows[i]].   x [T, C], out [n, C].
void gather_rows(Context& ctx, const Tensor& x, const int32_t* rows, int64_t n, const Tensor& out);

}  // namespace hadal
