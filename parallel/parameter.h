// A parameter knows how it is cut over the tensor-parallel group, which of its elements this rank
// has, and where they are.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "parallel/layout.h"

namespace tandem {

struct ParameterSpec {
  std::string name;  ///< PyTorch style, e.g. "layers.0.fc1.weight"
  Shape shape;       ///< global, without padding
  /// Dimension cut over the tensor-parallel group; -1: replicated.
  int cut_dimension = -1;
  /// Fused parts along the cut dimension, each cut on its own (SwiGLU's fc1 is [gate; up]).
  int parts = 1;
  /// Initial value: normal(0, init_std), or the constant `init_value` where init_std is 0.
  double init_std = 0.0;
  double init_value = 0.0;
  /// The gradient is a partial sum over the tensor-parallel group (replicated parameters under
  /// sequence parallelism).
  bool partial_gradient = false;
  /// Parameters of one block share a gradient bucket, e.g. "layers.0"; matrices only.
  std::string block;
};

/// A contiguous run of a parameter's local elements whose master and optimizer state are this
/// rank's to keep and to update.
struct ParameterShard {
  std::int64_t start = 0;  ///< in the local tensor, row-major
  /// [length]. `master` is a part of the weight where the storage type is the main type; moments
  /// are absent where the optimizer has none.
  Tensor master, exp_avg, exp_avg_sq;

  std::int64_t stop() const { return start + master.numel(); }
};

class Parameter {
 public:
  Parameter(ParameterSpec spec, const Layout& layout, std::uint32_t index);

  const ParameterSpec& spec() const { return spec_; }
  const std::string& name() const { return spec_.name; }
  bool is_matrix() const { return spec_.shape.rank() > 1; }
  bool is_cut() const { return spec_.cut_dimension >= 0; }
  /// Shape of this rank's part. A size that does not divide is padded at the end of each part, so
  /// that local shapes are equal on all ranks; padding holds zeros and gets zero gradients.
  const Shape& local_shape() const { return local_shape_; }
  /// First global index of this rank's part along the cut dimension, within a fused part.
  std::int64_t cut_start() const { return cut_start_; }
  /// Real (not padding) indices of this rank along the cut dimension, within a fused part.
  std::int64_t cut_valid() const { return cut_valid_; }

  /// Calls `visit(local, global, length)` for each contiguous run of real elements: flat offsets
  /// into the local and the global row-major tensor. Runs cover this rank's part exactly once.
  void for_each_run(
      const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& visit) const;

  /// The same for the runs within elements [start, stop) of the local tensor.
  void for_each_run_in(
      std::int64_t start, std::int64_t stop,
      const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& visit) const;

  /// Local views, of local_shape().
  Tensor weight, main_grad;
  /// In order of their elements. Without ZeRO one, of all.
  std::vector<ParameterShard> shards;
  /// Indices of the gradient buckets in which its elements lie.
  std::size_t first_bucket() const { return first_bucket_; }
  std::size_t last_bucket() const { return last_bucket_; }

 private:
  friend class ParameterStore;

  ParameterSpec spec_;
  std::uint32_t index_;
  Shape local_shape_;
  std::int64_t cut_start_ = 0;
  std::int64_t cut_valid_ = 0;
  std::int64_t flat_offset_ = 0;
  std::size_t first_bucket_ = 0;
  std::size_t last_bucket_ = 0;
};

}  // namespace tandem
