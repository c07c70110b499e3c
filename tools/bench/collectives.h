// `bench collectives`: time and bandwidth of every collective by size, on the groups of a layout as
// training uses them. Sizes and bandwidths are counted as nccl-tests counts them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/ledger.h"
#include "train/session.h"

namespace tandem {

/// What nccl-tests multiplies size / time with, so that the result is the speed of the links and
/// does not depend on the number of ranks: all_reduce 2 (n - 1) / n, broadcast 1, others (n - 1) /
/// n.
double bus_factor(Collective op, int ranks);

struct CollectiveTime {
  std::string group;
  int ranks = 0;
  Collective op = Collective::kAllReduce;
  std::int64_t bytes =
      0;  ///< of the tensor that is reduced or sent, or of the whole that is gathered
  std::int64_t count = 0;  ///< its elements
  double seconds = 0.0;    ///< of one call, mean of many, on the rank that took longest

  double algorithm_bandwidth() const { return static_cast<double>(bytes) / seconds; }
  double bus_bandwidth() const { return algorithm_bandwidth() * bus_factor(op, ranks); }
};

/// Measures in the storage type, from 1 KiB up. Groups of one axis run at the same time, as they do
/// in training. The same on every rank. Throws ConfigError (agreed) where memory is short.
std::vector<CollectiveTime> benchmark_collectives(Session& session, const Config& config);

}  // namespace tandem
