// What config and layout say of a run without running it, to be put beside what it counted: memory
// by category, and the calls and bytes of every collective.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tools/report/run_data.h"

namespace tandem::report {

struct Predicted {
  std::vector<std::pair<std::string, double>> memory;  ///< bytes of a rank by category
  /// Of all the steps that the run's traffic.json covers, in the rows that it says; empty without.
  std::vector<TrafficLine> traffic;
};

/// Throws ConfigError where the run's config cannot be read by this version.
Predicted predicted_of(const RunData& run);

}  // namespace tandem::report
