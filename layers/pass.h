// One micro-batch going through the network: what every layer's forward and backward needs to know
// about it, beside the rank itself.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/device.h"
#include "parallel/gradient_reducer.h"
#include "parallel/rank_context.h"
#include "parallel/weight_gatherer.h"

namespace tandem {

struct Pass {
  RankContext* rank = nullptr;
  /// Rows of the micro-batch on every tensor-parallel rank; a multiple of tp, may be 0.
  std::int64_t rows = 0;
  /// [rows] int64 on the device; keys of dropout's draws.
  Tensor row_keys;
  /// Dropout of this step; p = 0 in evaluation.
  Dropout dropout;
  /// The first micro-batch of a step overwrites main gradients, later ones add.
  Write write = Write::kOverwrite;
  /// Told when a main gradient is complete; nullptr in evaluation.
  GradientReducer* reducer = nullptr;
  /// Asked before a weight is read in forward; nullptr where all weights are there.
  WeightGatherer* weights = nullptr;

  Device& device() const { return *rank->device; }
  Stream& compute() const { return *rank->compute; }
  /// Runs a phase inside a profiler range of its name; returns what it returns.
  template <typename Phase>
  auto in_range(std::string_view name, Phase&& phase) const {
    const ProfileRange range(rank->profiler, {name, {}, rows});
    return phase();
  }
  /// Forward reads the parameter's weight from here on.
  void needs(const Parameter& parameter) const {
    if (weights != nullptr) {
      weights->wait(parameter);
    }
  }
  /// Whether the matmuls that make weight gradients have company: f's backward collective, or a
  /// bucket of gradients.
  bool beside_collective() const {
    return rank->tensor_parallel->size() > 1 || (reducer != nullptr && reducer->reduces());
  }
  void ready(const Parameter& parameter) const {
    if (reducer != nullptr) {
      reducer->ready(parameter);
    }
  }
};

}  // namespace tandem
