// Which ranks share a host, and what a host has for them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "parallel/communicator.h"
#include "parallel/layout.h"

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

/// What a rank computes with on the host.
struct RankCpus {
  std::int32_t threads = 1;
  std::int32_t cpus = 1;  ///< that it may run on
};
/// Collective over `control` (all ranks): those of every rank, of which this one has `threads`.
std::vector<RankCpus> gather_cpus(Communicator& control, int threads);

// What a user should know of where the launcher put the ranks, each with the remedy.

/// Ranks with more threads than CPUs.
std::optional<std::string> cpu_warning(const std::vector<RankCpus>& ranks);
/// Tensor-parallel groups on several hosts.
std::optional<std::string> host_warning(const HostMap& hosts, const Layout& layout);

/// CPUs this process may run on.
int allowed_cpus();
/// Bytes that this host can still give to processes here: the smaller of the free memory and what
/// the control groups (cgroups) leave.
std::size_t available_memory();
/// What the memory limits of a process's control groups leave it: the least over the group and its
/// ancestors, of version 1 and 2, files in the page cache not counted as used. `membership` is in
/// the form of /proc/self/cgroup, `root` in that of /sys/fs/cgroup. The largest number if nothing
/// limits it.
std::size_t cgroup_memory(const std::filesystem::path& membership,
                          const std::filesystem::path& root);

}  // namespace tandem
