#include "parallel/gradient_reducer.h"

#include <algorithm>

namespace tandem {

GradientReducer::GradientReducer(const RankContext& rank, const ParameterStore& store)
    : rank_(&rank), sharded_(store.options().sharded) {
  for (const GradientBucket& bucket : store.buckets()) {
    const std::size_t parameters = bucket.parameters.size();
    pending_.push_back({&bucket, "gradients " + bucket.name, std::vector<bool>(parameters, false),
                        parameters, Work()});
  }
}

void GradientReducer::ready(const Parameter& parameter) {
  if (no_sync_ > 0) {
    return;
  }
  for (std::size_t b = parameter.first_bucket(); b <= parameter.last_bucket(); ++b) {
    Pending& pending = pending_[b];
    const auto& parameters = pending.bucket->parameters;
    const auto place = static_cast<std::size_t>(
        std::find(parameters.begin(), parameters.end(), &parameter) - parameters.begin());
    ensure(!pending.ready.at(place), "a gradient is ready twice in one step");
    pending.ready[place] = true;
    if (--pending.missing == 0) {
      pending.work = reduce(pending);
    }
  }
}

Work GradientReducer::reduce(const Pending& pending) {
  const GradientBucket& bucket = *pending.bucket;
  Communicator& group = *rank_->data_parallel;
  const CollectiveOptions options{.after = rank_->compute, .label = pending.label};
  const bool rounded = !bucket.wire.absent() && group.size() > 1;
  if (rounded) {
    rank_->device->cast(*rank_->compute, bucket.main_grad, bucket.wire);
  }
  const Tensor& all = rounded ? bucket.wire : bucket.main_grad;
  const Tensor& own = rounded ? bucket.own_wire : bucket.own_main_grad;
  return sharded_ ? group.reduce_scatter(all, own, options) : group.all_reduce(all, options);
}

void GradientReducer::finish() {
  for (Pending& pending : pending_) {
    ensure(pending.missing == 0, "a gradient was not ready by the end of the step");
    pending.work.wait(*rank_->compute);
    const GradientBucket& bucket = *pending.bucket;
    if (!bucket.wire.absent() && rank_->data_parallel->size() > 1) {
      rank_->device->cast(*rank_->compute, bucket.own_wire, bucket.own_main_grad);
    }
  }
  reset();
}

void GradientReducer::reset() {
  for (Pending& pending : pending_) {
    pending.ready.assign(pending.ready.size(), false);
    pending.missing = pending.ready.size();
    pending.work = Work();
  }
}

}  // namespace tandem
