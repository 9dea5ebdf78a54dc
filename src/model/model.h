// A model family behind one verb: forward(). registry.cpp is the only place that lists families.
#pragma once

#include <functional>
#include <memory>

#include "base/gpu.h"
#include "base/tensor_source.h"
#include "kernels/dispatch/kernels.h"
#include "model/config.h"
#include "model/numerics.h"
#include "model/step.h"
#include "model/weights.h"

namespace hadal {

// Sizes fixed at load; every buffer is made for them.
struct ModelLimits {
  int64_t max_rows = 512;        // T of a step
  int64_t max_context = 4096;    // positions of a sequence
  int64_t max_logit_rows = 512;  // rows of a step whose logits may be asked for
};

// Told the residual after layer `layer` (V3.x [T, C], V4 [T, R, C]) and, with layer == layers, the
// final norm's output of the rows whose logits are wanted [n, C]. For tests and draft modules.
using LayerObserver = std::function<void(int64_t layer, const Tensor& residual)>;

class Model {
 public:
  virtual ~Model() = default;

  // Runs the step's rows through the model, writes what they leave in the caches, and writes
  // logits [logit_count, V] f32. Preconditions (the engine checks them): rows <= max_rows, ids in
  // [0, V), positions < max_context, pages present for every entry the rows see or complete.
  virtual void forward(Context& ctx, const Step& step, const Tensor& logits) = 0;

  // Steps of equal rows, sequences, logit rows and variant queue the same work on a GPU: no other
  // choice of forward()'s is made on the host.
  virtual int variant(const Step& step) const = 0;

  // Weight bytes that one decoded token reads: all but unrouted experts and the embedding table.
  virtual int64_t step_weight_bytes() const = 0;

  virtual int64_t scratch_bytes() const = 0;

  // Of a GPU: the memory that holds the weights; else empty.
  virtual const GpuBuffer& weights_memory() const = 0;

  // Fills all scratch with NaN, to show what a step would read before writing it (tests).
  virtual void poison_scratch() = 0;

  LayerObserver observer;
};

// Binds the weights of `source` and makes the scratch buffers: in host memory, where `source` must
// outlive the model, or on `gpu`, to which the weights are copied. progress(done, total) counts
// bytes bound or, on a GPU, copied. Errors: those of load_*_weights (model/weights.h), no room.
Result<std::unique_ptr<Model>> make_model(const Config& config, const TensorSource& source,
                                          const Numerics& numerics, const ModelLimits& limits,
                                          const Progress& progress = {}, Gpu* gpu = nullptr);

// The largest shapes of ops that use a context's workspace (kernels/dispatch/kernels.h).
WorkspaceShapes workspace_shapes(const Config& config, const ModelLimits& limits);

// What make_model() allocates beside the weights.
int64_t model_scratch_bytes(const Config& config, const Numerics& numerics,
                            const ModelLimits& limits);

}  // namespace hadal
