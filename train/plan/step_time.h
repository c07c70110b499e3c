// The time of a step: the trainer's order of ranges, collectives and waits (docs/architecture.md),
// replayed with a machine's costs.
#pragma once

#include <string>
#include <vector>

#include "train/config.h"
#include "train/plan/hardware.h"

namespace tandem {

/// Seconds of a rank's step, by what it does in them.
struct StepTime {
  double compute = 0.0;
  double exposed_tp = 0.0;       ///< waits for tensor-parallel collectives
  double exposed_dp = 0.0;       ///< waits for gradients and weights
  double exposed_control = 0.0;  ///< token count, loss and norm
  double fixed = 0.0;

  double exposed() const { return exposed_tp + exposed_dp + exposed_control; }
  double total() const { return compute + exposed() + fixed; }

  /// The same by the phases that a run times, e.g. "forward".
  struct Phase {
    std::string name;
    double seconds = 0.0;
  };
  std::vector<Phase> phases;
};

/// What a step consists of beside config and layout.
struct StepLoad {
  double rows = 0.0;              ///< of a micro-batch, padding included
  double owned_parameters = 0.0;  ///< elements that the rank updates
  double working_set = 0.0;       ///< bytes that a micro-batch goes through
  std::vector<Traffic> traffic;   ///< of the step, from train/traffic.h
};

StepTime step_time(const Config& config, const Layout& layout, const Precision& precision,
                   const Hardware& hardware, const StepLoad& load);

}  // namespace tandem
