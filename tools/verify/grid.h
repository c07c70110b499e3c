// `verify --grid`: the same proof for every layout of the started ranks, with and without sequence
// parallelism, with accumulation 1 and 2, in fp32 and bf16; one line each.
#pragma once

#include <string>
#include <vector>

#include "train/config.h"

namespace tandem::verify {

struct GridPoint {
  Config config;
  std::string name;     ///< "tp 2 x dp 4, sequence parallel, accumulation 2, bf16"
  std::string skipped;  ///< why this config does not allow it; empty if it does
};

/// All points for tp * dp = `config.world()`. The micro-batch stays, the global batch follows.
std::vector<GridPoint> grid_of(const Config& config);

}  // namespace tandem::verify
