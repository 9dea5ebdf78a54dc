// Steps for the tests of ops that see sequences: rows of several sequences, pages in a random
// order, slots that are not the sequences' numbers.
#pragma once

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "gpu/target.h"
#include "kernels/batch.h"

namespace hadal::reference {

struct Steps {
  struct Sequence {
    int32_t rows, start;  // new rows, and how many positions are cached before them
  };

  Steps(std::vector<Sequence> sequences, int page_size, uint32_t seed) {
    std::mt19937 random(seed);
    int32_t longest = 0, n = static_cast<int32_t>(sequences.size());
    first_row.push_back(0);
    for (int32_t s = 0; s < n; ++s) {
      auto [rows, begin] = sequences[s];
      for (int32_t i = 0; i < rows; ++i) {
        positions.push_back(begin + i);
        sequence.push_back(s);
      }
      first_row.push_back(first_row.back() + rows);
      start.push_back(begin);
      slot.push_back(n - s);  // 1 .. n: slot 0 stays free
      longest = std::max(longest, begin + rows);
    }
    // No spare memory behind the last number, for whatever checks accesses.
    for (auto* v : {&positions, &sequence, &first_row, &start, &slot}) v->shrink_to_fit();
    batch.rows = first_row.back();
    batch.sequences = n;
    batch.positions = on_device(positions.data());
    batch.sequence = on_device(sequence.data());
    batch.first_row = on_device(first_row.data());
    batch.start = on_device(start.data());
    batch.slot = on_device(slot.data());
    table.page_size = page_size;
    table.stride = (longest + page_size - 1) / page_size + 1;
    page_count = n * table.stride + 2;
    pages.resize(page_count);
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), random);
    table.pages = on_device(pages.data());
  }
  Steps(const Steps&) = delete;

  // Row of entry j of sequence s in the pool as a [page_count * page_size] list.
  int64_t entry_row(int64_t s, int64_t j) const {
    return int64_t{pages[s * table.stride + j / table.page_size]} * table.page_size +
           j % table.page_size;
  }

  Batch batch;
  PageTable table;
  int64_t page_count = 0;
  Vector<int32_t> positions, sequence, first_row, start, slot, pages;
};

}  // namespace hadal::reference
