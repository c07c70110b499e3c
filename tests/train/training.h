// Runs the real trainer under a layout, ranks as threads, and brings home what every rank saw: step
// results, whole (gathered) weights and gradients. Replicated values are compared bit by bit across
// ranks after every step.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/ranks.h"
#include "train/trainer.h"

namespace tandem::test {

using SourceFactory = std::function<std::unique_ptr<DataSource>(const Config&, const Layout&)>;
/// Called on every rank before the first step, e.g. to set weights.
using Prepare = std::function<void(RankContext&, TrainState&)>;
using WholeTensors = std::map<std::string, std::vector<double>>;

struct TrainingOptions {
  int steps = 1;
  bool evaluate = false;  ///< after the last step
  DeviceFactory make_device = one_thread_cpu;
  SourceFactory make_source;  ///< default: what the config names
  Prepare prepare;
  std::optional<Progress> resumed;  ///< what the trainer goes on from
  /// Called on every rank after each step; ranks wait for each other behind it.
  std::function<void(const StepResult&)> after_step;
  /// Called on one rank after the other, after each step.
  std::function<void(const RankContext&, const TrainState&, const StepResult&)> inspect;
  bool observe = true;  ///< gather tensors, compare copies; off where memory is counted
};

struct Training {
  std::vector<StepResult> steps;
  EvaluationResult evaluation;
  WholeTensors initial, weights, gradients;  ///< gradients: of the last step, before clipping
  /// Collectives of one rank in each step.
  std::vector<std::uint64_t> collectives;
};

/// A language model small enough for grids: generated text of uneven documents, 8 samples a step.
Config small_config();
/// The same with 16 samples a step, which four data ranks share in up to four micro-batches.
Config grid_config();
/// The same for another layout and accumulation.
Config with_layout(Config config, int tp, int dp, std::int64_t accumulation);

Training train(const Config& config, const TrainingOptions& options = {});
/// The same as one rank of `world`: whole tensors hold NaN where another process has the values.
Training train_in(World& world, const Config& config, const TrainingOptions& options = {});

/// What must hold in fp32 between a layout and one rank: initial weights equal bit by bit, loss and
/// gradient norm of step 1 to 1e-6, the last step's loss to 1e-4.
void expect_equal_training(const Training& layout, const Training& one);

/// Largest |a - b| / |b| (2-norms) over tensors; compares names too.
double worst_difference(const WholeTensors& a, const WholeTensors& b);

/// A source of hand-made micro-batches of `ffn` rows: each step the same.
struct FfnRows {
  std::vector<float> input, expected;  ///< [tokens, hidden]
  std::int64_t tokens = 0;
  std::int64_t padding = 0;  ///< rows of zeros behind them
};
std::unique_ptr<DataSource> scripted_source(std::int64_t hidden, std::vector<FfnRows> micro_batches,
                                            DType storage = DType::kF32);

}  // namespace tandem::test
