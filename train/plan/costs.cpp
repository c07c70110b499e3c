#include "train/plan/costs.h"

namespace tandem {

double Costs::seconds(const RangeWork& work) const {
  const auto found = ranges.find(work.range);
  const RangeCost& cost = found == ranges.end() ? any : found->second;
  if (work.matmul && !matmuls.empty()) {
    return cost.fixed + cost.matmul * matmuls.seconds(*work.matmul) +
           work.beside_bytes * cost.per_byte;
  }
  return cost.fixed + work.flops * cost.per_flop + work.bytes * cost.per_byte;
}

const Link& Costs::link_of(Collective op) const {
  const auto found = collectives.find(op);
  return found == collectives.end() ? link : found->second;
}

}  // namespace tandem
