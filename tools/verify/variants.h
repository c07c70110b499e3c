// Runs of one rank that differ only in the order of their sums: rows of a micro-batch permuted,
// units of the feed-forward layers permuted, accumulation 1 or 2, and made in as many parts as the
// layout makes them in. In exact arithmetic all of them
// are one run, so their distance from the double-precision reference is what rounding alone does.
#pragma once

#include <cstdint>
#include <memory>

#include "tools/verify/noisy_update.h"
#include "tools/verify/outcome.h"

namespace tandem::verify {

/// The rows of every micro-batch of `source` in an order that `seed` draws.
std::unique_ptr<DataSource> permute_rows(std::unique_ptr<DataSource> source, std::uint64_t seed);

/// A bijection of [0, n) drawn from `seed`.
std::vector<std::int64_t> draw_permutation(std::int64_t n, std::uint64_t seed);

/// Variant number `index` (from 0) of the one-rank run. The units of its feed-forward layers are
/// renumbered: fc1's rows and bias (in each fused part) and fc2's columns move together, which
/// changes nothing but the order of sums. The outcome has them back in their usual order.
/// `noise`: of the gradients that are updated with; empty for none.
Outcome run_variant(const Config& config, int index, const RunPlan& plan,
                    const GradientNoise& noise = {});

}  // namespace tandem::verify
