// Least squares with coefficients that cannot be negative: what a cost is made of.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace tandem {

inline constexpr std::size_t kTerms = 3;

struct FitSample {
  std::array<double, kTerms> terms{};
  double seconds = 0.0;  ///< > 0
};

/// The coefficients >= 0 that make sum((terms * coefficients - seconds) / seconds)^2 least: the
/// relative error counts, so short samples weigh as much as long ones. A term that is 0 in all
/// samples gets 0.
std::array<double, kTerms> fit_costs(const std::vector<FitSample>& samples);

}  // namespace tandem
