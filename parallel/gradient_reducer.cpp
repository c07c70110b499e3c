#include "parallel/gradient_reducer.h"

namespace tandem {

GradientReducer::GradientReducer(const ParameterStore& store, Communicator& data_parallel,
                                 Stream& compute)
    : group_(&data_parallel), compute_(&compute) {
  for (const GradientBucket& bucket : store.buckets()) {
    for (const Parameter* parameter : bucket.parameters) {
      slots_[parameter] = {.bucket = pending_.size()};
    }
    pending_.push_back({&bucket, "gradients " + bucket.name, bucket.parameters.size(), Work()});
  }
}

void GradientReducer::ready(const Parameter& parameter) {
  if (no_sync_ > 0) {
    return;
  }
  Slot& slot = slots_.at(&parameter);
  ensure(!slot.ready, "a gradient is ready twice in one step");
  slot.ready = true;
  Pending& pending = pending_[slot.bucket];
  if (--pending.missing == 0) {
    pending.work =
        group_->all_reduce(pending.bucket->main_grad, {.after = compute_, .label = pending.label});
  }
}

void GradientReducer::finish() {
  for (Pending& pending : pending_) {
    ensure(pending.missing == 0, "a gradient was not ready by the end of the step");
    pending.work.wait(*compute_);
  }
  reset();
}

void GradientReducer::reset() {
  for (Pending& pending : pending_) {
    pending.missing = pending.bucket->parameters.size();
    pending.work = Work();
  }
  for (auto& [parameter, slot] : slots_) {
    slot.ready = false;
  }
}

}  // namespace tandem
