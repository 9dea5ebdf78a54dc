// Prometheus text (format 0.0.4) under the names that vLLM's dashboards read. Lives in the HTTP
// thread; the engine's own sums come in as ServeStats when somebody asks.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/serve_loop.h"

namespace hadal {

class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds);  // ascending
  void add(double value);
  // The lines of metric `name` with these labels ("a=\"b\"").
  std::string text(const std::string& name, const std::string& labels) const;

 private:
  std::vector<double> bounds_;
  std::vector<int64_t> counts_;  // one more than bounds
  int64_t count_ = 0;
  double sum_ = 0;
};

// One answered request, in seconds and tokens; negative where it did not come so far.
struct RequestTimes {
  double queue = -1, first_token = -1, decode = -1,
         total = -1;  // since it came; decode: first to last
  int64_t prompt_tokens = 0, tokens = 0;
  std::vector<double> gaps;  // between tokens
  std::string finished;      // "stop", "length", "abort", "error"
};

class Metrics {
 public:
  explicit Metrics(const std::string& model);
  void add(const RequestTimes& times);
  void add_refused() { ++refused_; }
  std::string text(const ServeStats& stats) const;

 private:
  std::string labels_;
  Histogram first_token_, gap_, per_token_, total_, queue_, prefill_, decode_, inference_;
  Histogram prompt_, generated_;
  std::map<std::string, int64_t> finished_;
  int64_t refused_ = 0;
};

}  // namespace hadal
