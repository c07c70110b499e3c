// `bench hardware`: what matmuls, ranges and collectives of a training step cost on this machine,
// in a file that the planner reads (train/plan/hardware.h).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench/fit.h"
#include "tools/bench/lattice.h"
#include "train/plan/costs.h"
#include "train/session.h"

namespace tandem {

/// Of one storage type.
struct MeasuredType {
  DType storage = DType::kF32;
  LatticeRates gflops;
  RangeCosts ranges, cold_ranges;
  double step_fixed = 0.0;  ///< seconds
};

/// What ranks cost that work side by side.
struct MeasuredRanks {
  int ranks = 1;
  int threads = 1;  ///< of each
  FittedCollectives collectives;
  std::vector<MeasuredType> types;
};

struct MeasuredHardware {
  std::string name;
  std::vector<std::string> sources;
  int cpus = 1;
  double memory = 0.0;  ///< bytes
  bool processes = false;
  /// That other processes kept busy meanwhile, on average, where it is known.
  std::optional<double> other_cpus;
  std::vector<MeasuredRanks> ranks;
};

/// Measures one rank on all CPUs (where ranks are threads of one process) and all ranks of the
/// session at once, in fp32, bf16 and the config's type. Collective over the session; the same on
/// every rank but for what rank 0 measured. Throws ConfigError where ranks are on several hosts or
/// on GPUs.
MeasuredHardware measure_hardware(Session& session, const Config& config);

/// The file's text, which load_hardware reads.
std::string to_yaml(const MeasuredHardware& hardware);

}  // namespace tandem
