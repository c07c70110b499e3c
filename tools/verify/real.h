// The real argument: a few steps of the config as it stands, under its layout, on one rank, and on
// the reference device in double from the same fp32 masters.
#pragma once

#include "tools/verify/compare.h"

namespace tandem::verify {

/// Runs of one rank whose distance from the reference estimates what rounding does. One sample
/// would be no estimate: it refuses clean runs.
inline constexpr int kVariants = 8;

/// The config cut to what takes seconds, data ranks, accumulation 2 and uneven counts kept; `cut`
/// says what was cut, or nothing.
Config cut_config(const Config& config, std::string& cut);

/// Collective over `world`: the one-rank runs are dealt out to the ranks. Complete on rank 0 alone.
RealRuns run_real(World& world, const Config& config, const RunPlan& plan,
                  const Decorators& under_test = {});

}  // namespace tandem::verify
