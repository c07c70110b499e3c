// Steps of small models, taken apart by their profiler ranges: what `bench hardware` fits costs to.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/trace.h"
#include "parallel/rank_context.h"
#include "train/config.h"
#include "train/data/source.h"
#include "train/plan/work.h"
#include "train/state.h"
#include "train/trainer.h"

namespace tandem {

/// A range of a step, and how long one call of it takes, on average: in the first micro-batch,
/// before which other models had the caches, and in the later ones. Of a range that is called once
/// a step the two are the same.
struct RangeSample {
  RangeWork work;
  double cold = 0.0;  ///< seconds
  double warm = 0.0;
};
/// From the seconds of a step's calls, in their order: equally many in each micro-batch, or fewer
/// than there are of these.
RangeSample range_sample(const RangeWork& work, std::span<const double> calls,
                         std::int64_t micro_batches);

/// A collective that is called and waited for.
struct CollectiveSample {
  Collective op = Collective::kAllReduce;
  int ranks = 1;
  double bytes = 0.0;  ///< as the ledger counts them
  std::int64_t calls = 0;
  double seconds = 0.0;  ///< mean over the calls, here and below
  double since = 0.0;    ///< computed since the collective before
};

struct StepSamples {
  std::vector<RangeSample> ranges;
  std::vector<CollectiveSample> collectives;
  double rest = 0.0;  ///< seconds of a step that are in neither
};

/// Trains a model on generated data, and takes apart the steps of this rank.
class StepSampler {
 public:
  /// Takes the first steps, which build primitives, touch memory and find fp16's loss scale.
  /// `rank.profiler` must be its groups' profiler; all ranks of the groups call this alike, here
  /// and below.
  StepSampler(const RankContext& rank, const Config& config);

  /// Takes one more. Throws InternalError where it lacks a range that the planner knows, or a
  /// micro-batch has one, with no other in it, that the planner does not know.
  StepSamples step();

 private:
  StepSamples take_apart(const TraceRecorder& trace) const;

  RankContext rank_;
  Config config_;
  Arena measured_;
  TrainState sizes_;
  Arena arena_;
  TrainState state_;
  std::unique_ptr<DataSource> source_;
  Trainer trainer_;
  std::map<std::string, RangeWork, std::less<>> works_;  ///< by range
};

}  // namespace tandem
