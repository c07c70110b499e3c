// The duality table: how a value crosses from one distribution over the tensor-parallel group to
// another, and what its gradient does on the way back. Every collective inside the network is a row
// of this table. One type per row; `forward` and `backward` of a row are adjoint linear maps.
//
// | operator                      | forward                | backward                      |
// | CopyToTensorParallel (f)      | identity               | all-reduce                    |
// | ReduceFromTensorParallel (g)  | all-reduce             | identity                      |
// | GatherFromTensorParallel      | all-gather, last dim   | split, last dim               |
// | ScatterToTensorParallel       | split, last dim        | all-gather, last dim          |
// | GatherFromSequenceParallel    | all-gather, tokens     | reduce-scatter, tokens        |
// | ReduceScatterToSequenceParallel | reduce-scatter, tokens | all-gather, tokens          |
// | ScatterToSequenceParallel     | split, tokens          | all-gather, tokens            |
// | AllToAll                      | all-to-all             | all-to-all, counts transposed |
// | AllReduceSum                  | all-reduce             | all-reduce                    |
//
// GatherFromTensorParallel's backward is a split because what follows the gather is computed alike
// on every rank, so each already holds the whole gradient. Where what follows differs from rank to
// rank the gradients are partial sums and must be added first: that is GatherFromSequenceParallel.
// AllReduceSum is the adjoint when every rank's copy of the loss counts (loss = sum over ranks); g
// is the adjoint when the replicated loss counts once. docs/maths.md derives both.
//
// `out` is where a result of another shape goes; rows that return their argument, changed in place
// or not, take none. Results may be used after `work.wait(stream)`. For a group of one every
// operator returns its argument and touches nothing.
#pragma once

#include <cstdint>
#include <span>

#include "parallel/communicator.h"

namespace tandem {

struct OperatorResult {
  Tensor tensor;
  Work work;
};

/// Megatron-LM's f, in front of column-parallel layers (Shoeybi et al. 2019, section 3).
class CopyToTensorParallel {
 public:
  explicit CopyToTensorParallel(Communicator& group) : group_(&group) {}
  OperatorResult forward(const Tensor& x, const CollectiveOptions& options) const;
  /// d_x (in place) becomes its sum over the group.
  OperatorResult backward(const Tensor& d_x, const CollectiveOptions& options) const;

 private:
  Communicator* group_;
};

/// Megatron-LM's g, behind row-parallel layers.
class ReduceFromTensorParallel {
 public:
  explicit ReduceFromTensorParallel(Communicator& group) : group_(&group) {}
  /// x (in place) becomes its sum over the group.
  OperatorResult forward(const Tensor& x, const CollectiveOptions& options) const;
  OperatorResult backward(const Tensor& d_y, const CollectiveOptions& options) const;

 private:
  Communicator* group_;
};

/// x [rows, n] -> [rows, size * n]: the ranks' columns side by side. The packed form of the last
/// dimension needs `scratch` [size, rows, n]; `device` unpacks on `options.after`, which is needed.
class GatherFromTensorParallel {
 public:
  GatherFromTensorParallel(Communicator& group, Device& device)
      : group_(&group), device_(&device) {}
  OperatorResult forward(const Tensor& x, const Tensor& out, const Tensor& scratch,
                         const CollectiveOptions& options) const;
  /// This rank's columns of d_y, copied to out [rows, n].
  OperatorResult backward(const Tensor& d_y, const Tensor& out,
                          const CollectiveOptions& options) const;

 private:
  Communicator* group_;
  Device* device_;
};

/// x [rows, size * n] -> this rank's columns [rows, n]; the adjoint of the above.
class ScatterToTensorParallel {
 public:
  ScatterToTensorParallel(Communicator& group, Device& device) : group_(&group), device_(&device) {}
  OperatorResult forward(const Tensor& x, const Tensor& out,
                         const CollectiveOptions& options) const;
  OperatorResult backward(const Tensor& d_y, const Tensor& out, const Tensor& scratch,
                          const CollectiveOptions& options) const;

 private:
  Communicator* group_;
  Device* device_;
};

/// x [rows / size, n] -> [rows, n]: all tokens before a column-parallel layer whose input is cut
/// over tokens (Korthikanti et al. 2022, g-bar's dual).
class GatherFromSequenceParallel {
 public:
  explicit GatherFromSequenceParallel(Communicator& group) : group_(&group) {}
  OperatorResult forward(const Tensor& x, const Tensor& out,
                         const CollectiveOptions& options) const;
  OperatorResult backward(const Tensor& d_y, const Tensor& out,
                          const CollectiveOptions& options) const;

 private:
  Communicator* group_;
};

/// x [rows, n], a partial sum -> this rank's tokens of the sum [rows / size, n].
class ReduceScatterToSequenceParallel {
 public:
  explicit ReduceScatterToSequenceParallel(Communicator& group) : group_(&group) {}
  OperatorResult forward(const Tensor& x, const Tensor& out,
                         const CollectiveOptions& options) const;
  OperatorResult backward(const Tensor& d_y, const Tensor& out,
                          const CollectiveOptions& options) const;

 private:
  Communicator* group_;
};

/// A replicated x [rows, n] -> this rank's tokens [rows / size, n], a view of x.
class ScatterToSequenceParallel {
 public:
  explicit ScatterToSequenceParallel(Communicator& group) : group_(&group) {}
  OperatorResult forward(const Tensor& x, const CollectiveOptions& options) const;
  OperatorResult backward(const Tensor& d_y, const Tensor& out,
                          const CollectiveOptions& options) const;

 private:
  Communicator* group_;
};

/// Rows to other ranks and back. For a group of one the rows are copied by the communicator.
class AllToAll {
 public:
  explicit AllToAll(Communicator& group) : group_(&group) {}
  OperatorResult forward(const Tensor& x, std::span<const std::int64_t> send_rows,
                         const Tensor& out, std::span<const std::int64_t> receive_rows,
                         const CollectiveOptions& options) const;
  /// The same row counts as in forward: what was sent comes back.
  OperatorResult backward(const Tensor& d_y, std::span<const std::int64_t> send_rows,
                          const Tensor& out, std::span<const std::int64_t> receive_rows,
                          const CollectiveOptions& options) const;

 private:
  Communicator* group_;
};

/// The sum where every rank's own copy of the loss counts.
class AllReduceSum {
 public:
  explicit AllReduceSum(Communicator& group) : group_(&group) {}
  OperatorResult forward(const Tensor& x, const CollectiveOptions& options) const;
  OperatorResult backward(const Tensor& d_y, const CollectiveOptions& options) const;

 private:
  Communicator* group_;
};

}  // namespace tandem
