// Both arguments, their verdict and its explanation: all that `verify` finds out about one layout.
#pragma once

#include <string>
#include <vector>

#include "tools/verify/compare.h"
#include "tools/verify/exact.h"

namespace tandem::verify {

struct Proof {
  std::vector<ExactArgument> exact;  ///< empty where no sum would be exact
  RealRuns real;
  std::vector<Row> real_rows;
  DType storage = DType::kF32;
  bool pass = false;
  std::string diagnosis;  ///< empty if it passes

  bool exact_passes() const;
};

/// Collective over `world`. Rank 0 gets all of it, the others `pass` alone.
Proof prove(World& world, const Config& config, const RunPlan& plan,
            const Decorators& under_test = {});

}  // namespace tandem::verify
