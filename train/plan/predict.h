// One layout of a config on a machine: memory by category, traffic, and the time of a step. Memory
// comes from the trainer's own measuring arena and traffic from train/traffic.h; time is a replay
// of the order in which the trainer computes, starts collectives and waits for them.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "core/arena.h"
#include "train/config.h"
#include "train/host_memory.h"
#include "train/plan/hardware.h"
#include "train/plan/rows.h"
#include "train/plan/step_time.h"

namespace tandem {

struct Prediction {
  Config config;                                   ///< with this layout
  double rows = 0.0;                               ///< of a micro-batch
  std::array<double, kMemoryCategories> memory{};  ///< bytes of a rank, by category
  HostMemory beside;                               ///< the arena, where ranks are CPUs
  double reserved = 0.0;
  bool fits = true;
  double flops = 0.0;  ///< model FLOPs of a step, whole job
  double tokens = 0.0;
  std::vector<Traffic> traffic;  ///< of a step
  StepTime time;
  std::string why;  ///< what holds this layout back, against the best; empty for the best

  double memory_bytes() const;
  double flops_per_s() const { return flops / time.total(); }
  double tokens_per_s() const { return tokens / time.total(); }
};

/// `config` has the layout that is asked for.
Prediction predict(const Config& config, const Hardware& hardware, const RowCounts& counts);

/// Every layout of `world` ranks that the config's rules allow: tp, dp, ZeRO, sequence parallelism
/// and micro-batch. Throws ConfigError if there is none.
std::vector<Config> legal_layouts(const Config& config, int world);

/// Predicts all of them: those that fit first, the fastest first, and says why the others lose.
std::vector<Prediction> plan(const Config& config, int world, const Hardware& hardware,
                             const SampledRows& sampled);

}  // namespace tandem
