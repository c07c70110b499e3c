// The order in which an embedding's gradient is summed: rows grouped by id, in row order within an
// id. Sorting first makes the sum race-free and the same on every device and thread count.
#pragma once

#include <cstdint>

namespace tandem {

struct EmbeddingSlot {
  const std::int32_t* ends;  ///< ends[v]: end of v's rows in `rows`; its begin is ends[v - 1] or 0
  const std::int32_t* rows;
  std::int32_t begin(std::int64_t v) const { return v == 0 ? 0 : ends[v - 1]; }
  std::int32_t end(std::int64_t v) const { return ends[v]; }
};

/// A counting sort of the rows of one slot by id - vocab_start, ids outside [0, vocab_local) left
/// out. `ids` is read with stride `context`; `workspace` holds rows + vocab_local values.
inline EmbeddingSlot sort_embedding_slot(const std::int32_t* ids, std::int64_t context,
                                         std::int64_t rows, std::int64_t vocab_start,
                                         std::int64_t vocab_local, std::int32_t* workspace) {
  std::int32_t* ends = workspace;
  std::int32_t* order = workspace + vocab_local;
  for (std::int64_t v = 0; v < vocab_local; ++v) {
    ends[v] = 0;
  }
  const auto local = [&](std::int64_t r) -> std::int64_t {
    const std::int64_t v = ids[r * context] - vocab_start;
    return ids[r * context] >= 0 && v >= 0 && v < vocab_local ? v : -1;
  };
  for (std::int64_t r = 0; r < rows; ++r) {
    if (const auto v = local(r); v >= 0) {
      ++ends[v];
    }
  }
  std::int32_t total = 0;
  for (std::int64_t v = 0; v < vocab_local; ++v) {
    const std::int32_t count = ends[v];
    ends[v] = total;
    total += count;
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    if (const auto v = local(r); v >= 0) {
      order[ends[v]++] = static_cast<std::int32_t>(r);
    }
  }
  return {ends, order};
}

}  // namespace tandem
