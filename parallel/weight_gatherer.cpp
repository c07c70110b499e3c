#include "parallel/weight_gatherer.h"

#include <utility>

namespace tandem {

WeightGatherer::WeightGatherer(const RankContext& rank, const ParameterStore& store)
    : rank_(&rank), sharded_(store.options().sharded) {
  for (const GradientBucket& bucket : store.buckets()) {
    pending_.push_back({&bucket, "weights " + bucket.name, false, Work()});
  }
}

void WeightGatherer::start() {
  if (!sharded_) {
    return;
  }
  // Backward completes buckets in the reverse of the order in which forward uses them.
  for (auto pending = pending_.rbegin(); pending != pending_.rend(); ++pending) {
    ensure(!pending->started, "weights are gathered twice before they are used");
    pending->started = true;
    pending->work =
        rank_->data_parallel->all_gather(pending->bucket->own_weight, pending->bucket->weight,
                                         {.after = rank_->compute, .label = pending->label});
  }
}

void WeightGatherer::wait(const Parameter& parameter) {
  for (std::size_t b = parameter.first_bucket(); b <= parameter.last_bucket(); ++b) {
    wait(pending_[b]);
  }
}

void WeightGatherer::wait_all() {
  for (Pending& pending : pending_) {
    wait(pending);
  }
}

void WeightGatherer::wait(Pending& pending) {
  if (std::exchange(pending.started, false)) {
    std::exchange(pending.work, Work()).wait(*rank_->compute);
  }
}

}  // namespace tandem
