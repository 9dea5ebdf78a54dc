// Random weights in the release formats for any config: what a bench runs where no checkpoint is.
// Same seed and same tensor name, same bytes, whatever the number of threads.
#pragma once

#include <memory>
#include <unordered_map>

#include "base/buffer.h"
#include "base/tensor_source.h"
#include "base/threads.h"
#include "model/config.h"
#include "model/weights.h"

namespace hadal {

// Holds the main model's tensors of expected_tensors(), each in its first dtype. Matrices have rows
// of about unit length, norms lie near 1, scales are powers of two, rows of expert tables hold
// distinct experts: activations stay finite and logits spread by about one.
class DummySource : public TensorSource {
 public:
  // Error where the machine has too little free memory. progress(done, total) in bytes.
  static Result<std::unique_ptr<DummySource>> make(const Config& config, uint64_t seed,
                                                   ThreadPool& threads,
                                                   const Progress& progress = {});

  // The same for weights that are copied to a GPU anyway: tensors of equal shape and role are views
  // that overlap, each beginning elsewhere, so that the host holds a fraction of the bytes.
  static Result<std::unique_ptr<DummySource>> make_overlapping(const Config& config, uint64_t seed,
                                                               ThreadPool& threads);

  std::optional<Tensor> find(const std::string& name) const override;
  std::vector<std::string> names() const override;
  std::string where(const std::string&) const override { return "random weights"; }

 private:
  DummySource() = default;
  Buffer arena_;
  std::unordered_map<std::string, Tensor> tensors_;
};

}  // namespace hadal
