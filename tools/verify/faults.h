// The smallest faults that the real argument would have seen in this config, found by trying them:
// each is planted into a one-rank run, and the verdict taken.
#pragma once

#include <string>
#include <vector>

#include "tools/verify/compare.h"

namespace tandem::verify {

struct PlantedFault {
  std::string fault;
  bool seen = false;
};

/// Faults in the rows of a step: a row dropped, a row counted twice.
inline constexpr int kRowFaults = 2;
/// `plan` with row fault `index` in its data, for a run of one rank.
RunPlan row_fault(const RunPlan& plan, int index);

/// `rows`: the clean verdict of the real argument. Row faults are judged by the runs' own outcomes;
/// scale errors are looked for in the first and the last matrix that backward comes to.
std::vector<PlantedFault> smallest_faults(const RealRuns& runs, const std::vector<Row>& rows,
                                          DType storage);

}  // namespace tandem::verify
