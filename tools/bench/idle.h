// Whether a machine was left alone while it was measured.
#pragma once

#include <chrono>
#include <istream>
#include <optional>

#include "parallel/communicator.h"

namespace tandem {

/// Seconds that all CPUs together have not been free since the machine started: they worked, or
/// another virtual machine had them. From the first line of Linux's /proc/stat; none where it is
/// not that.
/// `ticks`: of a second.
std::optional<double> busy_seconds(std::istream& stat, double ticks);

/// Counts from its construction on.
class OtherProcesses {
 public:
  OtherProcesses();
  /// CPUs of the machine that others than the ranks have kept busy, on average; none where that is
  /// not known. Collective over `everyone`, all on one host; `processes`: each rank is one.
  std::optional<double> cpus(Communicator& everyone, bool processes) const;

 private:
  std::chrono::steady_clock::time_point start_;
  std::optional<double> busy_;
  double own_;
};

}  // namespace tandem
