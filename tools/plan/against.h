// A run that has been held against its prediction: step and phases, time in collectives, and its
// traffic, label by label, which must be equal to the byte.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/config.h"
#include "train/plan/hardware.h"

namespace tandem {

struct Comparison {
  /// Milliseconds of a step of rank 0, of its steps but the first (the phases: of all).
  struct Time {
    std::string what;
    double predicted_ms = 0.0;
    double measured_ms = 0.0;
  };
  /// A label whose traffic is not what it should be.
  struct Difference {
    std::string label;
    std::int64_t calls = 0;  ///< counted - derived
    std::int64_t bytes = 0;
  };

  std::string run;
  std::vector<Time> times;
  std::uint64_t labels = 0;  ///< that were compared
  std::vector<Difference> differences;
};

/// `directory`: of a run, under way or ended (docs/metrics.md); `config`: its config.yaml. Throws
/// DataError for what is not there or cannot be read.
Comparison compare_with_run(const std::string& directory, const Config& config,
                            const Hardware& hardware);

std::string comparison_table(const Comparison& comparison);
/// Throws ConfigError if `file` cannot be written.
void write_comparison(const Comparison& comparison, const std::string& file);

}  // namespace tandem
