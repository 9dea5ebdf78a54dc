// One walk over a model's tensors serves two ends: a Recorder lists what must be there, a Loader
// binds what is there. weights_v4.cpp and weights_v32.cpp hold the walks.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "model/weights.h"

namespace hadal {

class Binder {
 public:
  explicit Binder(const Config& config) : config_(config) {}
  virtual ~Binder() = default;

  const Config& config() const { return config_; }

  // A tensor that is used as it lies: embedding, norm, bias, mHC, table.
  virtual Tensor tensor(const std::string& name, std::vector<int64_t> shape, TensorRole role) = 0;
  // The matrix [n, k] at `stem`.weight with the scales that its dtype needs.
  virtual Weight matrix(const std::string& stem, int64_t n, int64_t k, TensorRole role) = 0;
  // The routed experts of a layer, matrices at `stem`.<expert>.<gate|up|down name>.
  virtual void experts(int64_t layer, const std::string& stem, const char* gate, const char* up,
                       const char* down, MoeWeights& moe) = 0;
  // What follows belongs to the draft modules.
  virtual void begin_draft() {}

  // Rows [begin, end) of w, or an empty weight where there is none.
  static Weight rows(const Weight& w, int64_t begin, int64_t end) {
    return w.empty() ? Weight{} : w.rows(begin, end);
  }

 protected:
  const Config& config_;
};

// The walks. The draft blocks follow when `draft` is set.
void walk_v4(Binder& b, V4Weights& w, bool draft);
void walk_v32(Binder& b, V32Weights& w, bool draft);

class Recorder : public Binder {
 public:
  using Binder::Binder;
  std::vector<TensorSpec> specs;

  Tensor tensor(const std::string& name, std::vector<int64_t> shape, TensorRole role) override;
  Weight matrix(const std::string& stem, int64_t n, int64_t k, TensorRole role) override;
  void experts(int64_t layer, const std::string& stem, const char* gate, const char* up,
               const char* down, MoeWeights& moe) override;
  void begin_draft() override { draft_ = true; }

 private:
  bool draft_ = false;
};

// Keeps the first fault; after it every call returns nothing.
class Loader : public Binder {
 public:
  Loader(const Config& config, const TensorSource& source, const Progress& progress);

  Tensor tensor(const std::string& name, std::vector<int64_t> shape, TensorRole role) override;
  Weight matrix(const std::string& stem, int64_t n, int64_t k, TensorRole role) override;
  void experts(int64_t layer, const std::string& stem, const char* gate, const char* up,
               const char* down, MoeWeights& moe) override;
  // The first fault, or the first tensor of the source that nobody asked for.
  Status finish();

 private:
  std::string found_name(const std::string& released) const;
  std::string scale_name(const std::string& stem) const;
  std::optional<Tensor> take(const std::string& name);
  // `name` is the actual one from here on.
  Tensor checked(const std::string& name, const std::vector<int64_t>& shape,
                 const std::vector<DType>& dtypes);
  Weight with_scale(const std::string& name, const std::string& scale_name, Tensor data, int64_t n,
                    int64_t k);
  void packed_experts(int64_t layer, MoeWeights& moe);
  Tensor packed(const std::string& name, int64_t n, int64_t k);
  void packed_scale(const std::string& name, const std::string& scale, const Tensor& data,
                    int64_t n, int64_t k, Tensor& out);
  void check_scale(const std::string& name, const Tensor& scale);
  void check_finite(const std::string& name, const Tensor& t);
  void check_table(const std::string& name, const Tensor& t);
  void fail(const std::string& name, const std::string& what);

  const TensorSource& source_;
  const Progress& progress_;
  bool transformers_ = false;  // V4 under the names of a conversion
  int64_t done_ = 0, total_ = 0;
  std::unordered_set<std::string> used_;
  std::optional<Error> fault_;
};

}  // namespace hadal
