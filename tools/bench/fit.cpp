#include "tools/bench/fit.h"

#include <algorithm>

namespace tandem {

std::array<double, kTerms> fit_costs(const std::vector<FitSample>& samples) {
  std::array<double, kTerms> scale{};
  for (const FitSample& sample : samples) {
    for (std::size_t i = 0; i < kTerms; ++i) {
      scale[i] = std::max(scale[i], sample.terms[i] / sample.seconds);
    }
  }
  std::array<std::array<double, kTerms>, kTerms> products{};
  std::array<double, kTerms> sums{};
  for (const FitSample& sample : samples) {
    std::array<double, kTerms> row{};
    for (std::size_t i = 0; i < kTerms; ++i) {
      row[i] = scale[i] > 0.0 ? sample.terms[i] / sample.seconds / scale[i] : 0.0;
    }
    for (std::size_t i = 0; i < kTerms; ++i) {
      sums[i] += row[i];
      for (std::size_t j = 0; j < kTerms; ++j) {
        products[i][j] += row[i] * row[j];
      }
    }
  }
  // Coordinate descent: each coefficient in turn takes its best value >= 0.
  std::array<double, kTerms> found{};
  for (int round = 0; round < 10000; ++round) {
    for (std::size_t i = 0; i < kTerms; ++i) {
      if (products[i][i] > 0.0) {
        double rest = sums[i];
        for (std::size_t j = 0; j < kTerms; ++j) {
          rest -= j == i ? 0.0 : products[i][j] * found[j];
        }
        found[i] = std::max(0.0, rest / products[i][i]);
      }
    }
  }
  for (std::size_t i = 0; i < kTerms; ++i) {
    found[i] = scale[i] > 0.0 ? found[i] / scale[i] : 0.0;
  }
  return found;
}

}  // namespace tandem
