// Under ZeRO every data rank updates its own part of each bucket's weights; this gathers the parts
// of the others. The gathers of an update are started at once, in the order in which the next
// forward needs them, and each is waited for where a layer first reads what it brings. Without ZeRO
// every weight is there and nothing is done.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/parameter_store.h"
#include "parallel/rank_context.h"

namespace tandem {

class WeightGatherer {
 public:
  /// `rank` and `store` (already allocated) outlive the gatherer.
  WeightGatherer(const RankContext& rank, const ParameterStore& store);

  /// After the update that is queued on the compute stream. What was started before must have been
  /// waited for: every forward does.
  void start();
  /// What is queued on the compute stream from now on may read `parameter`'s weight.
  void wait(const Parameter& parameter);
  /// The same for all.
  void wait_all();

 private:
  struct Pending {
    const GradientBucket* bucket;
    std::string label;
    bool started = false;
    Work work;
  };

  void wait(Pending& pending);

  const RankContext* rank_;
  bool sharded_;
  std::vector<Pending> pending_;
};

}  // namespace tandem
