// Parameters know how they are cut over the tensor-parallel group, and live in two flat segments
// per rank, so that a gradient bucket is one contiguous range and the optimizer is two calls:
// matrices first, in reverse order of use (the order in which backward finishes them), then all
// vectors, those whose value is replicated over the group before those that are cut.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/device.h"
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

  /// Local views, of local_shape(). `master` is `weight` where the storage type is the main type.
  Tensor weight, master, main_grad;
  /// Optimizer state; absent where the optimizer has none.
  Tensor exp_avg, exp_avg_sq;

 private:
  friend class ParameterStore;

  ParameterSpec spec_;
  std::uint32_t index_;
  Shape local_shape_;
  std::int64_t cut_start_ = 0;
  std::int64_t cut_valid_ = 0;
  std::int64_t flat_offset_ = 0;
};

/// A contiguous range of the flat buffers, as the optimizer and the reducer see it.
struct ParameterRange {
  Tensor weight, master, main_grad, exp_avg, exp_avg_sq;

  ParameterRange slice(std::int64_t start, std::int64_t length) const;
};

/// A range of the main gradients that is reduced over the data ranks in one collective.
struct GradientBucket {
  std::string name;
  Tensor main_grad;
  std::vector<const Parameter*> parameters;
};

class ParameterStore {
 public:
  explicit ParameterStore(const Layout& layout) : layout_(layout) {}

  /// Adds a parameter; called in order of use. The reference stays valid.
  Parameter& add(ParameterSpec spec);
  /// Lays out and allocates the flat buffers; `moments` is the number of optimizer state tensors
  /// (0 to 2). After this nothing can be added.
  void allocate(Arena& arena, const Precision& precision, int moments);
  /// Initial values from (seed, parameter, global element): the same for every layout. Drawn in
  /// double on the host, rounded to float once (so that every precision starts from the same
  /// masters), copied to the device.
  void initialize(Device& device, Stream& stream, std::uint64_t seed, int threads);

  const std::deque<Parameter>& parameters() const { return parameters_; }
  std::deque<Parameter>& parameters() { return parameters_; }
  const Parameter& find(const std::string& name) const;

  const ParameterRange& matrices() const { return matrices_; }
  const ParameterRange& vectors() const { return vectors_; }
  /// The vectors whose value is replicated over the tensor-parallel group, and those that are cut.
  const ParameterRange& replicated_vectors() const { return replicated_vectors_; }
  const ParameterRange& cut_vectors() const { return cut_vectors_; }
  /// In the order in which backward completes them.
  const std::vector<GradientBucket>& buckets() const { return buckets_; }
  /// Real parameters of the whole model.
  std::int64_t global_count() const;

 private:
  void place(std::span<Parameter* const> order, std::int64_t& offset);

  Layout layout_;
  std::deque<Parameter> parameters_;
  ParameterRange matrices_, vectors_, replicated_vectors_, cut_vectors_;
  std::vector<GradientBucket> buckets_;
  bool allocated_ = false;
};

}  // namespace tandem
