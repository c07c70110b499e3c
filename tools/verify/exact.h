// The exact argument: the layout's own plan on numbers whose every sum is exact in fp32, so that
// rounding excuses nothing and the layout must equal one rank bit by bit.
//
// Weights are -1, 0 or 1 in a pattern that hits every row and column of every shard, biases and
// inputs small integers; norms are replaced by the identity, gelu by relu and swiglu by
// relu(gate) * up, the loss by a linear one; dropout keeps with p = 0.5, which scales by 2. Token
// counts are uneven, with an empty first micro-batch, and add up to a power of two. One step of
// plain SGD. The same step on absolute values bounds every sum from above; while the bound is too
// high, layers are taken away.
//
// A config in bf16 has its plan proved in bf16 storage too, where what is stored stays below 2^8.
#pragma once

#include <vector>

#include "tools/verify/compare.h"

namespace tandem::verify {

struct ExactArgument {
  Config config;  ///< what was run: precision of storage, layers may be fewer
  /// Of every sum and of every stored value, in units of the smallest number.
  double sum_bound = 0.0, stored_bound = 0.0;
  /// On rank 0 alone; empty once all rows pass, when there is nothing to explain.
  Outcome layout, one_rank;
  std::vector<Row> rows;  ///< on rank 0 alone
};

/// Collective over `world`. One argument in fp32, and one in bf16 if the config is; none of a
/// precision in which even one layer has sums that are not exact.
std::vector<ExactArgument> run_exact(World& world, const Config& config,
                                     const Decorators& under_test = {});

}  // namespace tandem::verify
