// Sequences out of step with each other in one batch: what the CPU's and the GPU's tests share.
#pragma once

#include "model/fixture.h"
#include "model/runner.h"

namespace hadal {

// `ids` (the prompt of `f` or its beginning) on a runner with room for three sequences: every row's
// logits within `tolerance` of the fixture's.
inline void expect_interleaved(const Fixture& f, Runner& runner, std::span<const int32_t> ids,
                               float tolerance) {
  // The same prompt three times, out of step with itself: chunks of 5, 1 and 31 in one step.
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (int i = 0; i < 3; ++i) sequences.push_back(std::make_unique<Sequence>(runner.pool()));
  const size_t chunk[3] = {5, 1, 31};
  const size_t begins_at[3] = {0, 3, 1};  // step in which each sequence starts
  for (size_t step = 0; sequences[1]->length() < static_cast<int64_t>(ids.size()); ++step) {
    std::vector<Runner::Part> parts;
    std::vector<int64_t> from;
    for (int i = 2; i >= 0; --i) {
      auto done = static_cast<size_t>(sequences[i]->length());
      if (step < begins_at[i] || done == ids.size()) continue;
      parts.push_back(
          {sequences[i].get(), ids.subspan(done, std::min(chunk[i], ids.size() - done))});
      from.push_back(static_cast<int64_t>(done));
    }
    auto logits = runner.step(parts);
    auto row = logits.begin();
    for (size_t p = 0; p < parts.size(); ++p) {
      auto end = row + static_cast<int64_t>(parts[p].ids.size()) * f.config.vocab;
      ASSERT_LE(f.worst({row, end}, from[p]), tolerance) << "step " << step << " part " << p;
      row = end;
    }
  }
}

}  // namespace hadal
