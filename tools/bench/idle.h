// Whether a machine was left alone while it was measured.
#pragma once

#include <chrono>
#include <istream>

#include "parallel/communicator.h"

namespace tandem {

/// Seconds that all CPUs together have not been idle since the machine started, from the first line
/// of Linux's /proc/stat; 0 where it is not that. `ticks`: of a second.
double busy_seconds(std::istream& stat, double ticks);

/// Counts from its construction on.
class OtherProcesses {
 public:
  OtherProcesses();
  /// CPUs that processes other than the ranks' have kept busy, on average. Collective over
  /// `everyone`, all on one host; `processes`: each rank is one.
  double cpus(Communicator& everyone, bool processes) const;

 private:
  std::chrono::steady_clock::time_point start_;
  double busy_, own_;
};

}  // namespace tandem
