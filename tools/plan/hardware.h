// What a machine can do, as the planner needs it: rates of matmuls, memory and links, from a file.
// `configs/hardware/` has data sheets; a file may also state the cost of single ranges of a step.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "parallel/layout.h"
#include "parallel/ledger.h"
#include "tools/plan/work.h"

namespace tandem {

/// Seconds of a range = fixed + flops * per_flop + bytes * per_byte.
struct RangeCost {
  double fixed = 0.0;
  double per_flop = 0.0;
  double per_byte = 0.0;

  double seconds(const RangeWork& work) const {
    return fixed + work.flops * per_flop + work.bytes * per_byte;
  }
};

/// The alpha-beta model: a message of b bytes takes latency + b / bytes_per_s.
struct Link {
  double latency = 0.0;      ///< seconds
  double bytes_per_s = 1.0;  ///< that one rank can send
};

struct Hardware {
  std::string name;
  bool gpu = true;
  std::vector<std::string> sources;
  int ranks_per_host = 1;   ///< GPUs, or CPUs
  double memory = 0.0;      ///< bytes of one GPU, or of the host
  double reserved = 0.0;    ///< bytes per rank that are not the arena's
  double peak_flops = 0.0;  ///< of the data sheet, dense, for the storage type; 0 = unknown
  RangeCost any;            ///< of ranges that are not named in `ranges`
  std::map<std::string, RangeCost, std::less<>> ranges;
  Link host_link, network;   ///< between ranks of a host, and of different hosts
  double step_fixed = 0.0;   ///< seconds per step beside ranges and collectives
  double uncertainty = 0.0;  ///< half width of the 90 % interval, relative

  double seconds(const RangeWork& work) const;
  /// Of one collective of `bytes` (as the ledger counts them) in a group of `ranks` whose members
  /// are `stride` ranks apart.
  double seconds(Collective op, double bytes, int ranks, int stride) const;
  /// Ranks on one host, of `world`.
  int ranks_on_host(int world) const { return std::min(world, ranks_per_host); }
};

/// `name`: a file, or the name of one in configs/hardware without its ending, in any case. For runs
/// in `storage` type. Throws ConfigError.
Hardware load_hardware(const std::string& name, DType storage);

}  // namespace tandem
