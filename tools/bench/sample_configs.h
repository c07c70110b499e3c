// The small models whose steps `bench hardware` measures.
#pragma once

#include <vector>

#include "core/dtype.h"
#include "train/config.h"

namespace tandem {

/// Models of one rank that together have every range of a step, at sizes that fill caches
/// differently.
std::vector<Config> model_configs(DType storage);

/// Models of `ranks` ranks, in fp32, under layouts that together have every collective of a step.
std::vector<Config> split_configs(int ranks);

}  // namespace tandem
