// Steps of small models, taken apart by their profiler ranges: what `bench hardware` fits costs to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/rank_context.h"
#include "train/config.h"
#include "train/plan/work.h"

namespace tandem {

/// A range of a step, and how long one call of it takes.
struct RangeSample {
  RangeWork work;
  double seconds = 0.0;  ///< mean, here and below
};

/// A collective that is called and waited for.
struct CollectiveSample {
  Collective op = Collective::kAllReduce;
  int ranks = 1;
  double bytes = 0.0;  ///< as the ledger counts them
  std::int64_t calls = 0;
  double seconds = 0.0;
  double since = 0.0;  ///< computed since the collective before
};

struct StepSamples {
  std::vector<RangeSample> ranges;
  std::vector<CollectiveSample> collectives;
  double rest = 0.0;  ///< seconds of a step that are in neither
};

/// Trains the config's model on generated data for a few steps and takes apart those of this rank.
/// `rank.profiler` must be its groups' profiler; all ranks of the groups call this alike.
StepSamples sample_steps(RankContext& rank, const Config& config);

}  // namespace tandem
