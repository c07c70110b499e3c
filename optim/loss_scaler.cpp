#include "optim/loss_scaler.h"

#include <algorithm>

namespace tandem {

namespace {

constexpr std::int64_t kCleanSteps = 1000;
constexpr double kFloor = 1.0;

}  // namespace

LossScale after_clean_step(LossScale scale) {
  ++scale.clean_steps;
  return scale.clean_steps < kCleanSteps ? scale : LossScale{2.0 * scale.value, 0};
}

LossScale after_overflow(LossScale scale) { return {std::max(kFloor, scale.value / 2.0), 0}; }

}  // namespace tandem
