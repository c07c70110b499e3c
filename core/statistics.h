// Order statistics of a few numbers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "core/error.h"

namespace tandem {

/// Between the two values that lie around it in proportion, as usual; `fraction` in [0, 1].
inline double quantile(std::vector<double> values, double fraction) {
  ensure(!values.empty() && fraction >= 0.0 && fraction <= 1.0, "a quantile of no values");
  std::sort(values.begin(), values.end());
  const double place = fraction * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

inline double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

}  // namespace tandem
