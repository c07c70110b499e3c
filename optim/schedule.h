// Learning rate as a function of the update count. Updates count from 1, and only steps that
// changed the weights count, so a skipped step does not move the schedule.
#pragma once

#include <cstdint>

namespace tandem {

enum class ScheduleKind { kConstant, kLinear, kCosine, kWsd };

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::kCosine;
  std::int64_t warmup_steps = 20;  ///< linear from base/warmup at update 1 to base at update warmup
  std::int64_t stable_steps = 0;   ///< wsd only: updates at base after the warm-up
  std::int64_t decay_steps =
      200;  ///< the update (not a length) at which min_lr is reached; 0 = never
  double min_lr = 1e-4;

  bool operator==(const ScheduleConfig&) const = default;
};

/// The rate of update `update` (from 1). Linear and cosine fall from `base` at the end of the
/// warm-up to `min_lr` at `decay_steps` and stay there; wsd holds `base` for `stable_steps` first
/// and then falls linearly.
double learning_rate(const ScheduleConfig& schedule, double base, std::int64_t update);

}  // namespace tandem
