// The sampler: penalties, temperature, filters, one draw by inverse distribution over ascending
// ids. Drawing in order of ids, not of probability, keeps the drawn token the same when a filter
// cuts a little more or less of the tail and when two numerics order near-equal tokens differently.
#include "engine/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/logprobs.h"

namespace hadal {
namespace {

uint64_t mix(uint64_t x) {  // the finaliser of SplitMix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Orders ids by a value, best first, the lower id first among equals.
template <class T>
struct Better {
  const T* value;
  bool operator()(int32_t a, int32_t b) const {
    return value[a] != value[b] ? value[a] > value[b] : a < b;
  }
};

// Moves the best n of `ids` to the front, in order.
template <class T>
void sort_best(std::vector<int32_t>& ids, int64_t begin, int64_t n, const T* value) {
  auto first = ids.begin() + begin, last = first + n;
  if (last != ids.end()) std::nth_element(first, last, ids.end(), Better<T>{value});
  std::sort(first, last, Better<T>{value});
}

int32_t argmax(std::span<const double> v) {
  return static_cast<int32_t>(std::max_element(v.begin(), v.end()) - v.begin());
}

}  // namespace

Status check_sampling(const SamplingParams& p, int64_t vocab) {
  auto wrong = [](const char* name, auto value, const std::string& allowed) -> Status {
    return Error{fmt::format("{} is {}: it must be {}", name, value, allowed)};
  };
  if (!(p.temperature >= 0)) return wrong("temperature", p.temperature, "0 or more");
  if (p.top_k < 0) return wrong("top_k", p.top_k, "0 (all tokens) or more");
  if (!(p.top_p >= 0 && p.top_p <= 1)) return wrong("top_p", p.top_p, "between 0 and 1");
  if (!(p.min_p >= 0 && p.min_p <= 1)) return wrong("min_p", p.min_p, "between 0 and 1");
  if (!std::isfinite(p.presence_penalty))
    return wrong("presence_penalty", p.presence_penalty, "a finite number");
  if (!std::isfinite(p.frequency_penalty))
    return wrong("frequency_penalty", p.frequency_penalty, "a finite number");
  if (!(p.repetition_penalty > 0 && std::isfinite(p.repetition_penalty)))
    return wrong("repetition_penalty", p.repetition_penalty, "above 0 and finite (1 = none)");
  if (p.max_tokens < 1) return wrong("max_tokens", p.max_tokens, "1 or more");
  if (p.logprobs < -1 || p.logprobs > vocab)
    return wrong("logprobs", p.logprobs,
                 fmt::format("between 0 and {}, the size of the vocabulary", vocab));
  return {};
}

double uniform(uint64_t seed, uint64_t index) {
  uint64_t x = mix(mix(seed) + (index + 1) * 0x9e3779b97f4a7c15u);
  return static_cast<double>(x >> 11) * 0x1p-53;
}

Sampler::Sampler(const SamplingParams& params, int64_t vocab, std::span<const int32_t> prompt)
    : params_(params), score_(vocab), weight_(vocab) {
  order_.reserve(vocab);
  if (params_.repetition_penalty != 1) seen_.insert(prompt.begin(), prompt.end());
}

void Sampler::apply_penalties() {
  double repetition = params_.repetition_penalty;
  if (repetition != 1) {
    for (int32_t id : seen_)
      score_[id] = score_[id] < 0 ? score_[id] * repetition : score_[id] / repetition;
  }
  for (auto [id, n] : count_) {
    double frequency = params_.frequency_penalty, presence = params_.presence_penalty;
    score_[id] -= frequency * static_cast<double>(n) + presence;
  }
}

void Sampler::keep_top_k(int64_t k) {
  if (k >= static_cast<int64_t>(order_.size())) return;
  std::nth_element(order_.begin(), order_.begin() + k, order_.end(), Better<double>{score_.data()});
  for (auto it = order_.begin() + k; it != order_.end(); ++it) weight_[*it] = 0;
  order_.resize(k);
}

void Sampler::keep_top_p(double p) {
  double total = 0;
  for (int32_t id : order_) total += weight_[id];
  // The kept set is short as a rule: order the best few, and more of them only while needed.
  int64_t n = static_cast<int64_t>(order_.size()), sorted = 0;
  double mass = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (i == sorted) {
      int64_t block = std::min(n - sorted, std::max<int64_t>(256, sorted * 3));
      sort_best(order_, sorted, block, score_.data());
      sorted += block;
    }
    if (i > 0 && mass >= p * total) {
      for (int64_t j = i; j < n; ++j) weight_[order_[j]] = 0;
      order_.resize(i);
      return;
    }
    mass += weight_[order_[i]];
  }
}

void Sampler::apply_filters() {
  double best = score_[argmax(score_)], t = params_.temperature;
  order_.clear();
  for (int32_t id = 0; id < static_cast<int32_t>(score_.size()); ++id) {
    double w = std::exp((score_[id] - best) / t);  // 1 for the best: the scale that min_p is on
    bool kept = w > 0 && w >= params_.min_p;
    weight_[id] = kept ? w : 0;
    if (kept) order_.push_back(id);
  }
  if (params_.top_k > 0) keep_top_k(params_.top_k);
  if (params_.top_p < 1) keep_top_p(params_.top_p);
}

int32_t Sampler::draw(double u) {
  double total = std::accumulate(weight_.begin(), weight_.end(), 0.0), mass = 0;
  int32_t last = 0;
  for (int32_t id = 0; id < static_cast<int32_t>(weight_.size()); ++id) {
    if (weight_[id] == 0) continue;
    mass += weight_[id];
    last = id;
    if (mass > u * total) break;
  }
  return last;
}

Result<GeneratedToken> Sampler::sample(std::span<const float> logits,
                                       std::span<const TokenBias> bias) {
  HADAL_CHECK(logits.size() == score_.size(),
              fmt::format("{} logits for a vocabulary of {}", logits.size(), score_.size()));
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isfinite(logits[i]))
      return Error{
          fmt::format("the model computed {} as the logit of token id {}: the checkpoint "
                      "may be damaged; compare with --numerics exact",
                      logits[i], i)};
    score_[i] = logits[i];
  }
  for (const TokenBias& b : bias) score_[b.id] += b.bias;
  apply_penalties();
  GeneratedToken token{argmax(score_), 0, {}};
  if (params_.temperature > 0) {
    apply_filters();
    token.id = draw(uniform(params_.seed, index_));
  }
  if (params_.logprobs >= 0) add_logprobs(logits, params_.logprobs, order_, token);
  ++index_;
  if (params_.repetition_penalty != 1) seen_.insert(token.id);
  if (params_.presence_penalty != 0 || params_.frequency_penalty != 0) ++count_[token.id];
  return token;
}

}  // namespace hadal
