#include "layers/tokens.h"

namespace tandem {

TokenRegion::TokenRegion(std::string name, bool sequence_parallel)
    : sequence_parallel_(sequence_parallel),
      enter_label_(name + " f.forward"),
      enter_backward_label_(name + " f.backward"),
      leave_label_(name + " g.forward"),
      leave_backward_label_(name + " g.backward") {}

std::int64_t TokenRegion::shard_rows(const Pass& pass) const {
  return sequence_parallel_ ? pass.rows / pass.rank->layout.tp : pass.rows;
}

Tensor TokenRegion::shard_of(const Pass& pass, const Tensor& whole) const {
  if (!sequence_parallel_) {
    return whole;
  }
  const std::int64_t rows = shard_rows(pass);
  return whole.slice(0, pass.rank->layout.tp_rank() * rows, rows);
}

OperatorResult TokenRegion::enter(const Pass& pass, const Tensor& x, const Tensor& gathered) const {
  Communicator& tp = *pass.rank->tensor_parallel;
  if (sequence_parallel_) {
    return GatherFromSequenceParallel(tp).forward(x, gathered, options(pass, enter_label_));
  }
  return CopyToTensorParallel(tp).forward(x, options(pass, enter_label_));
}

OperatorResult TokenRegion::enter_backward(const Pass& pass, const Tensor& d_x,
                                           const Tensor& scattered) const {
  Communicator& tp = *pass.rank->tensor_parallel;
  if (sequence_parallel_) {
    return GatherFromSequenceParallel(tp).backward(d_x, scattered,
                                                   options(pass, enter_backward_label_));
  }
  return CopyToTensorParallel(tp).backward(d_x, options(pass, enter_backward_label_));
}

OperatorResult TokenRegion::leave(const Pass& pass, const Tensor& y,
                                  const Tensor& scattered) const {
  Communicator& tp = *pass.rank->tensor_parallel;
  if (sequence_parallel_) {
    return ReduceScatterToSequenceParallel(tp).forward(y, scattered, options(pass, leave_label_));
  }
  return ReduceFromTensorParallel(tp).forward(y, options(pass, leave_label_));
}

OperatorResult TokenRegion::leave_backward(const Pass& pass, const Tensor& d_y,
                                           const Tensor& gathered) const {
  Communicator& tp = *pass.rank->tensor_parallel;
  if (sequence_parallel_) {
    return ReduceScatterToSequenceParallel(tp).backward(d_y, gathered,
                                                        options(pass, leave_backward_label_));
  }
  return ReduceFromTensorParallel(tp).backward(d_y, options(pass, leave_backward_label_));
}

}  // namespace tandem
