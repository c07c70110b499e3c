// What a step communicates, from config and layout alone: calls and bytes of every label. The one
// place where this is derived: tests hold the ledger against it, exactly, and the planner predicts
// with it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/dtype.h"
#include "parallel/layout.h"
#include "parallel/ledger.h"
#include "parallel/parameter_store.h"
#include "train/config.h"

namespace tandem {

/// Rows that a data rank computes in one step, padding included: what the traffic depends on
/// beside config and layout, and all of it is proportional to their sum.
struct StepRows {
  std::int64_t micro_batches = 1;
  std::int64_t rows = 0;  ///< of all of them
};

/// The collectives that a rank of `layout` enters in the ledger during a step that updates the
/// weights, one entry per label, in no order. Groups of one have none. `store` holds the network's
/// parameters, laid out (with or without memory): its buckets are the gradients' collectives.
std::vector<Traffic> step_traffic(const Config& config, const Layout& layout,
                                  const Precision& precision, const ParameterStore& store,
                                  const StepRows& rows);

/// The same for `steps` steps together, which computed `rows`.
std::vector<Traffic> run_traffic(const Config& config, const Layout& layout,
                                 const Precision& precision, const ParameterStore& store,
                                 std::int64_t steps, const StepRows& rows);

}  // namespace tandem
