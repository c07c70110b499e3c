#include "parallel/operators.h"

namespace tandem {

namespace {

Work sum(Communicator& group, const Tensor& tensor, const CollectiveOptions& options) {
  ensure(options.op == ReduceOp::kSum, "an operator of the table is linear: it reduces by sum");
  return group.all_reduce(tensor, options);
}

Work sum_scatter(Communicator& group, const Tensor& input, const Tensor& output,
                 const CollectiveOptions& options) {
  ensure(options.op == ReduceOp::kSum, "an operator of the table is linear: it reduces by sum");
  return group.reduce_scatter(input, output, options);
}

Tensor own_tokens(const Communicator& group, const Tensor& x) {
  ensure(x.rank() >= 1 && x.dim(0) % group.size() == 0, "tokens do not divide by the group");
  const std::int64_t tokens = x.dim(0) / group.size();
  return x.slice(0, group.index() * tokens, tokens);
}

/// [rows, size * n] -> this rank's columns [rows, n].
OperatorResult split_columns(const Communicator& group, Device& device, const Tensor& x,
                             const Tensor& out, const CollectiveOptions& options) {
  if (group.size() == 1) {
    return {x, {}};
  }
  ensure(options.after != nullptr, "columns are copied on options.after");
  ensure(x.rank() == 2 && out.rank() == 2 && x.dim(1) == group.size() * out.dim(1),
         "the columns do not divide into one out per rank");
  device.copy(*options.after, x.slice(1, group.index() * out.dim(1), out.dim(1)), out);
  return {out, work_after(device, *options.after)};
}

/// The ranks' [rows, n] side by side: [rows, size * n].
OperatorResult gather_columns(Communicator& group, Device& device, const Tensor& x,
                              const Tensor& out, const Tensor& scratch,
                              const CollectiveOptions& options) {
  if (group.size() == 1) {
    return {x, {}};
  }
  ensure(options.after != nullptr, "columns are copied on options.after");
  ensure(x.rank() == 2 && out.rank() == 2 && out.dim(0) == x.dim(0) &&
             out.dim(1) == group.size() * x.dim(1),
         "out is not [rows, size * n]");
  group.all_gather(x, scratch, options).wait(*options.after);
  const Tensor parts = scratch.reshape({group.size() * x.dim(0), x.dim(1)});
  for (int r = 0; r < group.size(); ++r) {
    device.copy(*options.after, parts.slice(0, r * x.dim(0), x.dim(0)),
                out.slice(1, r * x.dim(1), x.dim(1)));
  }
  return {out, work_after(device, *options.after)};
}

OperatorResult gather_tokens(Communicator& group, const Tensor& x, const Tensor& out,
                             const CollectiveOptions& options) {
  if (group.size() == 1) {
    return {x, {}};
  }
  return {out, group.all_gather(x, out, options)};
}

OperatorResult reduce_scatter_tokens(Communicator& group, const Tensor& x, const Tensor& out,
                                     const CollectiveOptions& options) {
  if (group.size() == 1) {
    return {x, {}};
  }
  return {out, sum_scatter(group, x, out, options)};
}

}  // namespace

OperatorResult CopyToTensorParallel::forward(const Tensor& x, const CollectiveOptions&) const {
  return {x, {}};
}
OperatorResult CopyToTensorParallel::backward(const Tensor& d_x,
                                              const CollectiveOptions& options) const {
  return {d_x, sum(*group_, d_x, options)};
}

OperatorResult ReduceFromTensorParallel::forward(const Tensor& x,
                                                 const CollectiveOptions& options) const {
  return {x, sum(*group_, x, options)};
}
OperatorResult ReduceFromTensorParallel::backward(const Tensor& d_y,
                                                  const CollectiveOptions&) const {
  return {d_y, {}};
}

OperatorResult GatherFromTensorParallel::forward(const Tensor& x, const Tensor& out,
                                                 const Tensor& scratch,
                                                 const CollectiveOptions& options) const {
  return gather_columns(*group_, *device_, x, out, scratch, options);
}
OperatorResult GatherFromTensorParallel::backward(const Tensor& d_y, const Tensor& out,
                                                  const CollectiveOptions& options) const {
  return split_columns(*group_, *device_, d_y, out, options);
}

OperatorResult ScatterToTensorParallel::forward(const Tensor& x, const Tensor& out,
                                                const CollectiveOptions& options) const {
  return split_columns(*group_, *device_, x, out, options);
}
OperatorResult ScatterToTensorParallel::backward(const Tensor& d_y, const Tensor& out,
                                                 const Tensor& scratch,
                                                 const CollectiveOptions& options) const {
  return gather_columns(*group_, *device_, d_y, out, scratch, options);
}

OperatorResult GatherFromSequenceParallel::forward(const Tensor& x, const Tensor& out,
                                                   const CollectiveOptions& options) const {
  return gather_tokens(*group_, x, out, options);
}
OperatorResult GatherFromSequenceParallel::backward(const Tensor& d_y, const Tensor& out,
                                                    const CollectiveOptions& options) const {
  return reduce_scatter_tokens(*group_, d_y, out, options);
}

OperatorResult ReduceScatterToSequenceParallel::forward(const Tensor& x, const Tensor& out,
                                                        const CollectiveOptions& options) const {
  return reduce_scatter_tokens(*group_, x, out, options);
}
OperatorResult ReduceScatterToSequenceParallel::backward(const Tensor& d_y, const Tensor& out,
                                                         const CollectiveOptions& options) const {
  return gather_tokens(*group_, d_y, out, options);
}

OperatorResult ScatterToSequenceParallel::forward(const Tensor& x, const CollectiveOptions&) const {
  return {own_tokens(*group_, x), {}};
}
OperatorResult ScatterToSequenceParallel::backward(const Tensor& d_y, const Tensor& out,
                                                   const CollectiveOptions& options) const {
  return gather_tokens(*group_, d_y, out, options);
}

OperatorResult AllToAll::forward(const Tensor& x, std::span<const std::int64_t> send_rows,
                                 const Tensor& out, std::span<const std::int64_t> receive_rows,
                                 const CollectiveOptions& options) const {
  return {out, group_->all_to_all(x, send_rows, out, receive_rows, options)};
}
OperatorResult AllToAll::backward(const Tensor& d_y, std::span<const std::int64_t> send_rows,
                                  const Tensor& out, std::span<const std::int64_t> receive_rows,
                                  const CollectiveOptions& options) const {
  return {out, group_->all_to_all(d_y, receive_rows, out, send_rows, options)};
}

OperatorResult AllReduceSum::forward(const Tensor& x, const CollectiveOptions& options) const {
  return {x, sum(*group_, x, options)};
}
OperatorResult AllReduceSum::backward(const Tensor& d_y, const CollectiveOptions& options) const {
  return {d_y, sum(*group_, d_y, options)};
}

}  // namespace tandem
