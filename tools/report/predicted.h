// What config and layout say of a run without running it, to be put beside what it counted: memory
// by category, the calls and bytes of every collective, and the time of a step's phases on a
// machine that was measured: all from the planner (train/plan).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tools/plan/against.h"
#include "tools/report/run_data.h"
#include "train/config.h"

namespace tandem::report {

struct Predicted {
  std::vector<std::pair<std::string, double>> memory;  ///< bytes of a rank by category
  /// Of all the steps that the run's traffic.json covers, in the rows that it says; empty without.
  std::vector<TrafficLine> traffic;
  std::string machine;                  ///< of the times
  std::vector<Comparison::Time> times;  ///< with those that the run measured
  std::string no_times;                 ///< why there are none
};

/// Throws ConfigError where the run's config cannot be read by this version.
Config config_of(const RunData& run);

/// `hardware`: as `plan --hardware`. Throws ConfigError if it is named and cannot be read; what
/// else is missing for times is said in `no_times`.
Predicted predicted_of(const RunData& run, const Config& config, const std::string& hardware);

}  // namespace tandem::report
