#include "optim/schedule.h"

#include <cmath>
#include <numbers>

namespace tandem {

double learning_rate(const ScheduleConfig& schedule, double base, std::int64_t update) {
  if (update <= schedule.warmup_steps) {
    return base * static_cast<double>(update) / static_cast<double>(schedule.warmup_steps);
  }
  if (schedule.kind == ScheduleKind::kConstant || schedule.decay_steps == 0) {
    return base;
  }
  if (update >= schedule.decay_steps) {
    return schedule.min_lr;
  }
  const std::int64_t start =
      schedule.warmup_steps + (schedule.kind == ScheduleKind::kWsd ? schedule.stable_steps : 0);
  if (update <= start) {
    return base;
  }
  const double progress =
      static_cast<double>(update - start) / static_cast<double>(schedule.decay_steps - start);
  const double left = schedule.kind == ScheduleKind::kCosine
                          ? 0.5 * (1.0 + std::cos(std::numbers::pi * progress))
                          : 1.0 - progress;
  return schedule.min_lr + (base - schedule.min_lr) * left;
}

}  // namespace tandem
