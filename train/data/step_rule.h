// Which samples a data rank takes: of a step, one contiguous part; of the held-out part, one
// contiguous run of batches.
#pragma once

#include <cstdint>

#include "parallel/layout.h"
#include "train/config.h"

namespace tandem {

struct SampleRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// Positions of the run in micro-batch `micro` of data rank d in the step that starts at position
/// `consumed`: consumed + d * global_batch / dp + micro * micro_batch + [0, micro_batch).
SampleRange micro_batch_positions(const TrainConfig& train, const Layout& layout,
                                  std::int64_t consumed, std::int64_t micro);

/// Batches that every data rank goes through to see `samples` held-out samples once.
std::int64_t evaluation_batches_per_rank(const TrainConfig& train, const Layout& layout,
                                         std::int64_t samples);

/// The held-out samples of evaluation batch `index` of this data rank; none where it ran out.
SampleRange evaluation_samples(const TrainConfig& train, const Layout& layout, std::int64_t samples,
                               std::int64_t index);

}  // namespace tandem
