// Sums main gradients over the data ranks, one collective per bucket and step. The protocol of a
// step: backward of every micro-batch calls ready() for each parameter once its main gradient is
// complete; all but the last run under a NoSync, where ready() does nothing; in the last one a
// bucket's collective starts as soon as all its parameters are ready; finish() waits for all.
// Gradients are summed, never averaged: each token's share of the loss was divided by the step's
// token count before the first backward. Under ZeRO a rank receives the sums of its own part of
// each bucket, and the rest of the main gradients is then of no use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/parameter_store.h"
#include "parallel/rank_context.h"

namespace tandem {

class GradientReducer {
 public:
  /// `rank` and `store` (already allocated) outlive the reducer.
  GradientReducer(const RankContext& rank, const ParameterStore& store);

  /// While one lives, gradients only accumulate. Nests: the outermost decides.
  class NoSync {
   public:
    explicit NoSync(GradientReducer& reducer) : reducer_(&reducer) { ++reducer_->no_sync_; }
    ~NoSync() { --reducer_->no_sync_; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    GradientReducer* reducer_;
  };

  /// Whether buckets travel as they fill.
  bool reduces() const { return no_sync_ == 0 && rank_->data_parallel->size() > 1; }
  /// What is queued on the compute stream now completes the gradient of `parameter`.
  void ready(const Parameter& parameter);
  /// The compute stream waits for every bucket. Throws InternalError if a parameter was never
  /// ready, or twice, since the last finish(): its gradient would be unsummed or stale.
  void finish();
  /// Forgets what was ready: after an exception in mid-step.
  void reset();

 private:
  struct Pending {
    const GradientBucket* bucket;
    std::string label;
    /// Of bucket->parameters; a gradient that is ready twice must not stand for another.
    std::vector<bool> ready;
    std::size_t missing;
    Work work;
  };

  Work reduce(const Pending& pending);

  const RankContext* rank_;
  bool sharded_;
  std::vector<Pending> pending_;
  int no_sync_ = 0;
};

}  // namespace tandem
