// What a cost is made of: coefficients that cannot be negative, fitted to measured times.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/bench/sample_steps.h"
#include "train/plan/costs.h"

namespace tandem {

struct FitSample {
  std::vector<double> terms;  ///< as many in every sample
  double seconds = 0.0;       ///< > 0
};

/// The coefficients >= 0 that make the sum of |terms * coefficients - seconds| / seconds least: the
/// relative error counts, so short samples weigh as much as long ones, and not its square, so one
/// sample that was disturbed moves nothing. A term that is 0 in all samples gets 0.
std::vector<double> fit_costs(const std::vector<FitSample>& samples);

/// The cost of every range from samples of many models. How much slower matmuls are in a step than
/// in the lattice is one number for each kind of product: fitted for each range with what it does
/// beside, the two would stand in for each other. Other ranges cost fixed + bytes * per_byte.
/// `seconds`: &RangeSample::cold or &RangeSample::warm, the times to fit to.
RangeCosts fit_ranges(const std::vector<RangeSample>& samples, double RangeSample::*seconds,
                      const MatmulRates& matmuls);

struct FittedCollectives {
  std::map<Collective, Link> links;
  double waits = 0.0;  ///< for slower ranks, as in Costs; of all collectives alike
};

/// Seconds = latency + bytes sent / bandwidth + waits * seconds since the collective before. Waits
/// are rare and long, so they are what all calls together took beyond the rest.
FittedCollectives fit_collectives(const std::vector<CollectiveSample>& samples);

}  // namespace tandem
