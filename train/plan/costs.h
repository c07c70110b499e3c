// What the ranges and collectives of a step cost on a machine, to ranks that work side by side on
// one host.
#pragma once

#include <map>
#include <string>

#include "parallel/ledger.h"
#include "train/plan/matmul_rates.h"
#include "train/plan/work.h"

namespace tandem {

/// Seconds of a range. Of a machine that is known by rates: fixed + flops * per_flop + bytes *
/// per_byte; where matmuls were measured: fixed + matmul * their seconds + beside_bytes * per_byte.
struct RangeCost {
  double fixed = 0.0;
  double per_flop = 0.0;
  double per_byte = 0.0;
  double matmul = 1.0;
};

/// By RangeWork::name().
using RangeCosts = std::map<std::string, RangeCost, std::less<>>;

/// The alpha-beta model: a message of b bytes takes latency + b / bytes_per_s.
struct Link {
  double latency = 0.0;      ///< seconds
  double bytes_per_s = 1.0;  ///< that one rank can send
};

struct Costs {
  int ranks = 1;    ///< of a host, that these were found with
  int threads = 1;  ///< of each
  MatmulRates matmuls;
  RangeCost any;      ///< of every range, of a machine that is known by rates
  RangeCosts ranges;  ///< of a micro-batch whose data is in caches
  /// Where others have driven it out; empty where that is not known, and `ranges` stand for all.
  RangeCosts cold_ranges;
  Link link;                               ///< between ranks of a host
  std::map<Collective, Link> collectives;  ///< in its place, where they were measured
  /// Ranks of a machine that was measured are not equally fast in every moment: a collective waits
  /// for the slower one, by so much of the time that was computed since the last.
  double waits = 0.0;
  double step_fixed = 0.0;  ///< seconds per step beside ranges and collectives

  /// `cold`: the share, from 0 to 1, of what a micro-batch goes through that caches do not keep.
  /// Throws ConfigError for a range that a machine that was measured has not.
  double seconds(const RangeWork& work, double cold = 0.0) const;
  /// Throws ConfigError for a collective that a machine that was measured has not.
  const Link& link_of(Collective op) const;

 private:
  double seconds(const RangeWork& work, const RangeCosts& costs) const;
};

}  // namespace tandem
