// What a run trains: the network, its parameters with their optimizer state, and the buffers of a
// micro-batch on the device, all from one arena. Built twice: with a measuring arena to learn the
// size, then for real.
#pragma once

#include "core/arena.h"
#include "layers/network.h"
#include "parallel/parameter_store.h"
#include "train/config.h"

namespace tandem {

NetworkOptions network_options(const Config& config, std::int64_t max_rows);
OptimizerOptions optimizer_options(const Config& config);
StoreOptions store_options(const Config& config, const Precision& precision);
/// The types of a run on `device`.
Precision precision_of(const Config& config, DeviceKind device);
/// The same before there is a device.
Precision precision_of(const Config& config);

struct TrainState {
  /// `max_rows`: rows of the fullest micro-batch.
  TrainState(const Config& config, const Layout& layout, const Precision& precision,
             std::int64_t max_rows, Arena& arena);
  TrainState(const TrainState&) = delete;
  TrainState& operator=(const TrainState&) = delete;

  ParameterStore store;
  Network network;
  /// The micro-batch on the device, sized for the fullest.
  NetworkInput input;
  Tensor row_keys;  ///< [max_rows] int64
  /// float64 [2], which the host reads once a step, and its two parts.
  Tensor scalars, loss_sum, sum_of_squares;
};

}  // namespace tandem
