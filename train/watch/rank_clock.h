// What a rank spends a step on, from its step's result, its ledger and the system's scheduler: what
// ranks are compared by.
#pragma once

#include <chrono>
#include <fstream>

#include "parallel/ledger.h"
#include "train/trainer.h"
#include "train/watch/detectors.h"

namespace tandem {

/// Used by one thread, the rank's.
class RankClock {
 public:
  explicit RankClock(const Ledger& ledger);

  /// Before a step.
  void start();
  /// When the step is over and told of.
  RankTimes stop(const StepResult& step);

 private:
  struct Totals {
    double tensor_parallel = 0.0, data_parallel = 0.0, all = 0.0;  ///< exposed seconds of groups
    double without_cpu = 0.0;  ///< seconds for which this thread was ready and did not run
  };
  Totals totals();

  const Ledger* ledger_;
  std::ifstream scheduler_;  ///< not good where the system does not say
  Totals before_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace tandem
