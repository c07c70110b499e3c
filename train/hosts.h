// Which ranks share a host, and what a host has for them.
#pragma once

#include <string>
#include <vector>

#include "parallel/communicator.h"

namespace tandem {

struct HostMap {
  std::vector<std::string> names;  ///< by rank
  int ranks_here = 1;              ///< ranks on this rank's host
  int index_here = 0;              ///< this rank's place among them

  /// Distinct host names of `ranks`, in order of first appearance.
  std::vector<std::string> of(const std::vector<int>& ranks) const;
};

/// Collective over `control` (all ranks).
HostMap map_hosts(Communicator& control);

/// CPUs this process may run on.
int allowed_cpus();
/// Bytes that this host can still give to processes here: the smaller of the free memory and what
/// the control group (cgroup) leaves.
std::size_t available_memory();

}  // namespace tandem
