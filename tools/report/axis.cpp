#include "tools/report/axis.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tools/report/html.h"

namespace tandem::report {

namespace {

constexpr double kTicks = 5.0;  ///< about as many as an axis has

/// The 1, 2 or 5 times a power of ten that cuts `length` into about kTicks parts.
double nice_step(double length) {
  const double rough = length / kTicks;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double lead = rough / power;
  return power * (lead < 1.5 ? 1.0 : lead < 3.5 ? 2.0 : lead < 7.5 ? 5.0 : 10.0);
}

}  // namespace

Axis::Axis(double low, double high, Scale scale, bool rounded)
    : low_(low), high_(high), scale_(scale) {
  if (scale == Scale::kLog) {
    if (high <= low) {
      low_ = low / 2.0;
      high_ = high * 2.0;
    }
    decade_ticks();
    return;
  }
  if (high <= low) {
    const double half = low == 0.0 ? 1.0 : std::abs(low) / 2.0;
    low_ = low == 0.0 ? 0.0 : low - half;
    high_ = low + half;
  }
  const double step = nice_step(high_ - low_);
  if (rounded) {
    low_ = std::floor(low_ / step + 1e-9) * step;
    high_ = std::ceil(high_ / step - 1e-9) * step;
  }
  linear_ticks(step);
}

Axis::Axis(double low, double high, double step) : low_(low), high_(high), scale_(Scale::kLinear) {
  linear_ticks(step);
}

Axis Axis::of_steps(double first, double last) {
  if (last <= first) {
    return {first - 1.0, first + 1.0, 1.0};
  }
  return {first, last, std::max(1.0, nice_step(last - first))};
}

double Axis::position(double value) const {
  if (scale_ == Scale::kLinear) {
    return (value - low_) / (high_ - low_);
  }
  return value > 0.0 ? std::log(value / low_) / std::log(high_ / low_)
                     : std::numeric_limits<double>::quiet_NaN();
}

void Axis::linear_ticks(double step) {
  for (double i = std::ceil(low_ / step - 1e-9); i * step <= high_ + step * 1e-9; ++i) {
    ticks_.push_back({i * step, tick_text(i * step, step)});
  }
}

void Axis::decade_ticks() {
  const double decades = std::log10(high_ / low_);
  if (decades < 1.0) {  // 1, 2, 5 would leave it almost bare
    linear_ticks(nice_step(high_ - low_));
    return;
  }
  const int stride = std::max(1, static_cast<int>(std::ceil(decades / 6.0)));
  const std::vector<double> leads =
      decades < 2.5 ? std::vector<double>{1.0, 2.0, 5.0} : std::vector<double>{1.0};
  const int first = static_cast<int>(std::floor(std::log10(low_)));
  for (int power = first; std::pow(10.0, power) <= high_ * (1 + 1e-9); ++power) {
    if ((power % stride + stride) % stride != 0) {
      continue;
    }
    for (const double lead : leads) {
      const double value = lead * std::pow(10.0, power);
      if (value >= low_ * (1 - 1e-9) && value <= high_ * (1 + 1e-9)) {
        ticks_.push_back({value, tick_text(value, value)});
      }
    }
  }
}

}  // namespace tandem::report
