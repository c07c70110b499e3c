// `bench step`: the time of a training step of a config, held against the best rate at which this
// process multiplies matrices of the step's own shapes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/data/source.h"
#include "train/session.h"

namespace tandem {

/// A phase of a step without others inside it, by its profiler range.
struct StepPhase {
  std::string name;
  double ms = 0.0;  ///< rank 0, mean; the host's, so on a GPU the time of queueing
  /// Of the roof; absent for what multiplies no matrices, and where the host only queues.
  std::optional<double> roof_fraction;
};

struct StepBenchmark {
  int world = 1;
  std::int64_t tokens = 0;  ///< of one step, whole job
  std::int64_t matmul_parameters = 0;
  double step_ms = 0.0;      ///< median: forward, backward, reduction, clip, optimizer; data apart
  double data_ms = 0.0;      ///< median time to fetch the step's rows
  double gflops = 0.0;       ///< 6 * matmul_parameters * tokens / step_ms
  double roof_gflops = 0.0;  ///< of all ranks at once, the slowest counting
  std::vector<StepPhase> phases;
  double collectives = 0.0;  ///< of rank 0 in a step
  double ledger_ns = 0.0;    ///< what it costs to enter one in the ledger, with its times
  /// Of the step.
  double ledger_fraction() const { return collectives * ledger_ns * 1e-6 / step_ms; }
};

/// Runs `steps` steps of the config (the first is not counted) between two measurements of the
/// roof, of which the better one counts.
StepBenchmark benchmark_step(Session& session, const Config& config, DataSource& source);

}  // namespace tandem
