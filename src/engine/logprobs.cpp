// Log-softmax and the best tokens.
#include "engine/logprobs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace hadal {

void add_logprobs(std::span<const float> logits, int count, std::vector<int32_t>& scratch,
                  GeneratedToken& token) {
  double best = *std::max_element(logits.begin(), logits.end()), sum = 0;
  for (float v : logits) sum += std::exp(v - best);
  double norm = best + std::log(sum);
  auto logprob = [&](int32_t id) { return static_cast<float>(logits[id] - norm); };
  token.logprob = logprob(token.id);
  scratch.resize(logits.size());
  std::iota(scratch.begin(), scratch.end(), 0);
  auto better = [&](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  auto last = scratch.begin() + count;
  if (last != scratch.end()) std::nth_element(scratch.begin(), last, scratch.end(), better);
  std::sort(scratch.begin(), last, better);
  for (int i = 0; i < count; ++i) token.top.push_back({scratch[i], logprob(scratch[i])});
}

}  // namespace hadal
