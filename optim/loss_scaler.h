// The dynamic loss scale of fp16, whose range gradients leave at both ends: the loss is multiplied
// by it before backward, the update divides by it (Micikevicius et al. 2018,
// https://arxiv.org/abs/1710.03740). Every rank comes to the same verdict on a step, so every rank
// holds the same scale.
#pragma once

#include <cstdint>

namespace tandem {

struct LossScale {
  double value = 1.0;            ///< a power of two, so that scaling rounds nothing
  std::int64_t clean_steps = 0;  ///< since it last changed

  bool operator==(const LossScale&) const = default;
};

inline constexpr LossScale kFirstLossScale{65536.0, 0};

/// Twice the scale after 1000 steps whose gradients were finite.
LossScale after_clean_step(LossScale scale);
/// Half the scale, at least 1.
LossScale after_overflow(LossScale scale);

}  // namespace tandem
