// The update of the parameters that are this rank's from their main gradients, in one call per flat
// range. Weight
// decay applies to matrices (embedding, fc1, fc2, head) and never to biases and norm weights.
#pragma once

#include <array>
#include <cstdint>

#include "core/device.h"

namespace tandem {

class ParameterStore;

enum class OptimizerKind { kAdamW, kSgd };

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  std::array<double, 2> betas = {0.9, 0.95};
  double eps = 1e-8;
  double weight_decay = 0.1;
  double momentum = 0.9;  ///< sgd only
};

/// State tensors per parameter: 2 for AdamW, 1 for SGD (its kernel keeps a buffer at any momentum).
int optimizer_moments(const OptimizerOptions& options);

struct UpdateArguments {
  double lr = 0.0;
  /// Multiplies every gradient: clip factor / loss scale.
  double grad_scale = 1.0;
  std::int64_t update = 1;  ///< counts from 1; AdamW's t
};
void update_parameters(Device& device, Stream& stream, const ParameterStore& store,
                       const OptimizerOptions& options, const UpdateArguments& arguments);

}  // namespace tandem
