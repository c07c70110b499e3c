// What a machine can do, as the planner needs it, from a file: a data sheet's rates of matmuls,
// memory and links (configs/hardware/), or what `bench hardware` measured.
#pragma once

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "parallel/layout.h"
#include "parallel/ledger.h"
#include "train/plan/costs.h"

namespace tandem {

struct Hardware {
  std::string name;
  bool gpu = true;
  std::vector<std::string> sources;
  int ranks_per_host = 1;       ///< GPUs, or CPUs
  bool processes = true;        ///< of CPUs: ranks are processes, else threads of one
  double memory = 0.0;          ///< bytes of one GPU, or of the host
  double reserved = 0.0;        ///< bytes per rank that are not the arena's
  double peak_flops = 0.0;      ///< of a rank: the data sheet's, dense; 0: unknown, or measured
  std::vector<Costs> costs;     ///< by ranks on a host, ascending; at least one
  std::optional<Link> network;  ///< between hosts; none: all ranks are on one, however many
  double uncertainty = 0.0;     ///< half width of the 90 % interval, relative
  double cache = 0.0;           ///< bytes that the ranks of a CPU keep in caches; 0: not known

  /// Ranks on one host, of `world`.
  int ranks_on_host(int world) const { return network ? std::min(world, ranks_per_host) : world; }
  /// Of the most ranks on a host that were measured, up to those of `world`.
  const Costs& costs_of(int world) const;
  /// By how much ranges are slower because ranks share CPUs; 1 where each has its own.
  double crowding(int world) const;
  /// Of `bytes` that the ranks of a CPU go through again and again, the share, from 0 to 1, that
  /// caches do not keep.
  double cold_share(double bytes) const;
  /// Of one of `world` ranks: the data sheet's, or the fastest matmul that was measured of as many
  /// as are side by side.
  double peak_of(int world) const;
  /// Of one collective of `bytes` (as the ledger counts them) in a group of `ranks` whose members
  /// are `stride` ranks apart.
  double seconds(const Costs& here, Collective op, double bytes, int ranks, int stride) const;
};

/// Where `bench hardware` leaves what it measured, and the planner looks if no machine is named:
/// hardware.yaml in the user's cache directory ($XDG_CACHE_HOME/tandem or ~/.cache/tandem). Empty
/// where there is none.
std::filesystem::path measured_hardware_file();

/// `name`: a file, the name of one in configs/hardware without its ending, in any case, or empty
/// for measured_hardware_file(). For runs in `storage` type. Throws ConfigError.
Hardware load_hardware(const std::string& name, DType storage);

}  // namespace tandem
