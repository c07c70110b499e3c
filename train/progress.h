// What goes from step to step besides weights and moments.
#pragma once

#include <cstdint>
#include <optional>

#include "optim/loss_scaler.h"

namespace tandem {

/// Data order and dropout masks are functions of this and of the config.
struct Progress {
  std::int64_t step = 0;  ///< attempted
  std::int64_t consumed_samples = 0;
  std::int64_t skipped_steps = 0;
  std::int64_t non_finite_in_a_row = 0;
  std::optional<LossScale> loss_scale;  ///< none where the storage type needs none

  bool operator==(const Progress&) const = default;
};

}  // namespace tandem
