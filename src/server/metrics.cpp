// Counters and histograms to text.
#include "server/metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace hadal {
namespace {

std::vector<double> seconds() {
  return {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
          1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640};
}
std::vector<double> longer() {
  return {0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960};
}
std::vector<double> sizes() {
  return {1,    2,    5,     10,    20,    50,     100,    200,    500,    1000,
          2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000};
}

std::string escaped_label(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string head(const char* name, const char* type, const char* about) {
  return fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, about);
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

void Histogram::add(double value) {
  auto at = std::ranges::lower_bound(bounds_, value) - bounds_.begin();
  ++counts_[at];
  ++count_;
  sum_ += value;
}

std::string Histogram::text(const std::string& name, const std::string& labels) const {
  std::string out;
  int64_t below = 0;
  for (size_t i = 0; i < bounds_.size(); ++i) {
    below += counts_[i];
    out += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", name, labels, bounds_[i], below);
  }
  out += fmt::format("{}_bucket{{{},le=\"+Inf\"}} {}\n", name, labels, count_);
  out +=
      fmt::format("{}_sum{{{}}} {}\n{}_count{{{}}} {}\n", name, labels, sum_, name, labels, count_);
  return out;
}

Metrics::Metrics(const std::string& model)
    : labels_(fmt::format("model_name=\"{}\",engine=\"0\"", escaped_label(model))),
      first_token_(seconds()),
      gap_(seconds()),
      per_token_(seconds()),
      total_(longer()),
      queue_(longer()),
      prefill_(longer()),
      decode_(longer()),
      inference_(longer()),
      prompt_(sizes()),
      generated_(sizes()) {
  for (const char* reason : {"stop", "length", "abort", "error"}) finished_[reason] = 0;
}

void Metrics::add(const RequestTimes& t) {
  ++finished_[t.finished];
  if (t.queue >= 0) queue_.add(t.queue);
  if (t.first_token >= 0) {
    first_token_.add(t.first_token);
    prefill_.add(t.first_token - t.queue);
    decode_.add(t.decode);
    inference_.add(t.first_token - t.queue + t.decode);
    if (t.tokens > 1) per_token_.add(t.decode / static_cast<double>(t.tokens - 1));
    prompt_.add(static_cast<double>(t.prompt_tokens));
    generated_.add(static_cast<double>(t.tokens));
  }
  for (double gap : t.gaps) gap_.add(gap);
  if (t.finished == "stop" || t.finished == "length") total_.add(t.total);
}

std::string Metrics::text(const ServeStats& s) const {
  std::string out;
  auto value = [&](const char* name, const char* type, const char* about, auto number) {
    out += head(name, type, about) + fmt::format("{}{{{}}} {}\n", name, labels_, number);
  };
  auto histogram = [&](const char* name, const char* about, const Histogram& h) {
    out += head(name, "histogram", about) + h.text(name, labels_);
  };
  value("vllm:num_requests_running", "gauge", "Requests that hold a session", s.running);
  value("vllm:num_requests_waiting", "gauge", "Requests in the queue", s.waiting);
  value("vllm:kv_cache_usage_perc", "gauge",
        "Share of the cache that running requests hold (1 is all)", s.cache_usage);
  value("vllm:num_preemptions_total", "counter", "Requests that lost their cache", 0);
  value("vllm:prompt_tokens_total", "counter", "Tokens of prompts", s.prompt_tokens);
  value("vllm:prompt_tokens_cached_total", "counter", "Of these, found in kept sessions",
        s.cached_tokens);
  value("vllm:generation_tokens_total", "counter", "Tokens generated", s.generated_tokens);
  value("vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked up", s.prompt_tokens);
  value("vllm:prefix_cache_hits_total", "counter", "Prompt tokens found", s.cached_tokens);
  out += head("vllm:request_success_total", "counter", "Requests that ended, by reason");
  for (const auto& [reason, n] : finished_)
    out += fmt::format("vllm:request_success_total{{{},finished_reason=\"{}\"}} {}\n", labels_,
                       reason, n);
  histogram("vllm:time_to_first_token_seconds", "From arrival to the first token", first_token_);
  histogram("vllm:inter_token_latency_seconds", "Between two tokens", gap_);
  histogram("vllm:request_time_per_output_token_seconds",
            "Mean time of a request's tokens after the first", per_token_);
  histogram("vllm:e2e_request_latency_seconds", "From arrival to the last token", total_);
  histogram("vllm:request_queue_time_seconds", "From arrival to a session", queue_);
  histogram("vllm:request_prefill_time_seconds", "From the session to the first token", prefill_);
  histogram("vllm:request_decode_time_seconds", "From the first to the last token", decode_);
  histogram("vllm:request_inference_time_seconds", "From the session to the last token",
            inference_);
  histogram("vllm:request_prompt_tokens", "Tokens of a prompt", prompt_);
  histogram("vllm:request_generation_tokens", "Tokens generated for a request", generated_);
  value("hadal:engine_steps_total", "counter", "Forward passes", s.steps);
  value("hadal:requests_refused_total", "counter", "Requests that found the queue full", refused_);
  return out;
}

}  // namespace hadal
