// Where tensors come from: a checkpoint on disk, random weights for a bench, formulas in a test.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/tensor.h"

namespace hadal {

class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // The view of a tensor, valid while the source lives; nullopt where there is none of that name.
  virtual std::optional<Tensor> find(const std::string& name) const = 0;

  // All names, sorted. A source that makes what is asked for may return none.
  virtual std::vector<std::string> names() const = 0;

  // For messages: the file that holds the tensor, or what the source is.
  virtual std::string where(const std::string& name) const = 0;
};

}  // namespace hadal
