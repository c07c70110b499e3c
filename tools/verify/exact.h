// The exact argument: the layout's own plan on numbers whose every sum is exact in fp32, so that
// rounding excuses nothing and the layout must equal one rank bit by bit.
//
// Weights are -1, 0 or 1 in a pattern that hits every row and column of every shard, biases and
// inputs small integers; norms are replaced by the identity, gelu by relu and swiglu by
// relu(gate) * up, the loss by a linear one; dropout keeps with p = 0.5, which scales by 2. Token
// counts are uneven, with an empty first micro-batch, and add up to a power of two. One step of
// plain SGD. The same step on absolute values bounds every sum from above; while the bound is too
// high, layers are taken away.
#pragma once

#include <optional>

#include "tools/verify/outcome.h"

namespace tandem::verify {

struct ExactArgument {
  Config config;       ///< what was run: layers may be fewer
  double bound = 0.0;  ///< of every sum, in units of the smallest number; below 2^24
  Outcome layout, one_rank;
  bool norm_is_exact = true;  ///< the sum of squares stays below 2^53
};

/// Collective over `world`. Nothing if even one layer has sums that are not exact in fp32.
std::optional<ExactArgument> run_exact(World& world, const Config& config,
                                       const Decorators& under_test = {});

}  // namespace tandem::verify
