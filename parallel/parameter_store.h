// All parameters of a rank in flat buffers, so that a gradient bucket is one contiguous range and
// the update is a few calls: matrices first, in reverse order of use (the order in which backward
// finishes them), then all vectors, those whose value is replicated over the tensor-parallel group
// before those that are cut. Under ZeRO-1 (https://arxiv.org/abs/1910.02054) weights and main
// gradients are whole on every data rank, while masters and optimizer state are those of the rank's
// own part of each bucket.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/device.h"
#include "parallel/parameter.h"

namespace tandem {

struct StoreOptions {
  int moments = 0;       ///< optimizer state tensors per parameter, 0 to 2
  bool sharded = false;  ///< ZeRO-1
  /// A bucket holds the matrices of one block, or all vectors, or so many elements of them.
  std::int64_t bucket_elements = std::int64_t{64} << 20;
  /// What gradients are rounded to on their way between data ranks; nothing: not at all.
  std::optional<DType> wire;
};

/// A contiguous range of the flat buffers.
struct ParameterRange {
  Tensor weight, master, main_grad, exp_avg, exp_avg_sq;
};

/// A range that this rank updates.
struct OwnedRange {
  ParameterRange range;
  bool matrices = false;    ///< weight decay applies
  bool replicated = false;  ///< the same values on every tensor-parallel rank
};

/// A range of the main gradients that is reduced over the data ranks in one collective.
struct GradientBucket {
  std::string name;
  std::vector<const Parameter*> parameters;  ///< of which elements lie in it
  Tensor main_grad, weight;
  /// What this rank updates: under ZeRO one of dp equal parts, otherwise all of it.
  Tensor own_main_grad, own_weight;
  /// What travels in place of the main gradients where they are rounded; absent otherwise.
  Tensor wire, own_wire;
};

class ParameterStore {
 public:
  explicit ParameterStore(const Layout& layout) : layout_(layout) {}

  /// Adds a parameter; called in order of use. The reference stays valid.
  Parameter& add(ParameterSpec spec);
  /// Lays out and allocates the flat buffers. After this nothing can be added.
  void allocate(Arena& arena, const Precision& precision, const StoreOptions& options);
  /// Initial values from (seed, parameter, global element): the same for every layout. Drawn in
  /// double on the host, rounded to float once (so that every precision starts from the same
  /// masters), copied to the device.
  void initialize(Device& device, Stream& stream, std::uint64_t seed, int threads);

  const Layout& layout() const { return layout_; }
  const StoreOptions& options() const { return options_; }
  const std::deque<Parameter>& parameters() const { return parameters_; }
  std::deque<Parameter>& parameters() { return parameters_; }
  const Parameter& find(const std::string& name) const;

  /// Together, over the data ranks under ZeRO and on each of them otherwise, all parameters.
  const std::vector<OwnedRange>& owned() const { return owned_; }
  /// In the order in which backward completes them.
  const std::vector<GradientBucket>& buckets() const { return buckets_; }
  /// Real parameters of the whole model.
  std::int64_t global_count() const;

 private:
  struct Plan;
  class Buffers;

  Plan plan();
  void make_buckets(const Plan& plan, Buffers& buffers);

  Layout layout_;
  StoreOptions options_;
  std::deque<Parameter> parameters_;
  std::vector<OwnedRange> owned_;
  std::vector<GradientBucket> buckets_;
  bool allocated_ = false;
};

/// Elements that pass through the host at once, where memory must not grow with a parameter.
inline constexpr std::int64_t kHostPiece = 1 << 18;

/// Gives elements [start, start + size) of a parameter's local part, of the weight and of what this
/// rank keeps of the master, values from the host. Waits for the stream.
void set_master(Device& device, Stream& stream, const Parameter& parameter,
                std::span<const float> values, std::int64_t start = 0);
void set_master(Device& device, Stream& stream, const Parameter& parameter,
                std::span<const double> values, std::int64_t start = 0);
/// Copies host values into elements from `start` on of a tensor of any floating type; rounds to
/// nearest. Waits for the stream.
void set_tensor(Device& device, Stream& stream, const Tensor& tensor,
                std::span<const double> values, std::int64_t start = 0);

}  // namespace tandem
