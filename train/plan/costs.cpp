#include "train/plan/costs.h"

#include <fmt/format.h>

#include "core/error.h"

namespace tandem {

double Costs::seconds(const RangeWork& work, double cold) const {
  const double warm = seconds(work, ranges);
  return cold_ranges.empty() ? warm : warm + cold * (seconds(work, cold_ranges) - warm);
}

double Costs::seconds(const RangeWork& work, const RangeCosts& costs) const {
  const auto found = costs.find(work.name());
  if (found == costs.end() && !matmuls.empty()) {
    throw ConfigError("the machine's file has no range \"" + std::string(work.name()) +
                      "\": another version of bench hardware wrote it. Measure again: "
                      "build/bench hardware");
  }
  const RangeCost& cost = found == costs.end() ? any : found->second;
  if (work.matmul && !matmuls.empty()) {
    return cost.fixed + cost.matmul * matmuls.seconds(*work.matmul) +
           work.beside_bytes * cost.per_byte;
  }
  return cost.fixed + work.flops * cost.per_flop + work.bytes * cost.per_byte;
}

const Link& Costs::link_of(Collective op) const {
  const auto found = collectives.find(op);
  if (found == collectives.end() && !matmuls.empty()) {
    throw ConfigError(fmt::format(
        "the machine's file does not say what {} costs: measure with more than one rank, "
        "build/bench hardware",
        name_of(op)));
  }
  return found == collectives.end() ? link : found->second;
}

}  // namespace tandem
