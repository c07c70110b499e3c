// Where a step that was skipped is not finite: which ranks' loss, which gradient first, whether the
// weights are already. Looked at when it happens for the first time in a run: it reads everything.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "parallel/layout.h"
#include "parallel/rank_context.h"
#include "train/state.h"

namespace tandem {

/// Of one rank. Parameters by their place in the order of use, -1: none.
struct NonFiniteValues {
  std::int64_t loss = 0;       ///< 1: its own loss, before it is summed over ranks
  std::int64_t weight = -1;    ///< the first whose weights are not finite
  std::int64_t weights = 0;    ///< how many such parameters
  std::int64_t gradient = -1;  ///< the first that backward comes to: the last in the order of use
  std::int64_t gradients = 0;
};

/// Collective over rank.control, after a step: what each rank finds. All of them on every rank.
std::vector<NonFiniteValues> find_non_finite(const RankContext& rank, const TrainState& state);

/// Where, the likely cause and what to do. `names` of parameters in the order of use;
/// `first_sample`, `last_sample` of the step.
std::string describe_non_finite(std::span<const NonFiniteValues> ranks, const Layout& layout,
                                const std::vector<std::string>& names, std::int64_t first_sample,
                                std::int64_t last_sample);

}  // namespace tandem
