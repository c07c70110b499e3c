// Runs a config for a few steps under its layout, or on one rank, and brings home what it computed
// as whole tensors in double.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "parallel/world.h"
#include "train/config.h"
#include "train/data/source.h"
#include "train/state.h"

namespace tandem::verify {

/// Parameter name -> all elements of the global tensor, row-major.
using WholeTensors = std::map<std::string, std::vector<double>>;

struct Outcome {
  WholeTensors initial;    ///< masters before step 1
  WholeTensors gradients;  ///< main gradients of step 1: summed over data ranks, before clipping
  WholeTensors weights;    ///< masters after the last step
  std::vector<double> losses, grad_norms;
  std::vector<double> tokens;
  std::vector<ParameterSpec> parameters;  ///< in order of use: backward goes the other way
  /// Parameters of which two ranks that should hold the same bits did not: at first, at last.
  std::vector<std::string> unequal_initial, unequal_copies;

  // Of step 1, for the diagnosis; see probe.h.
  std::vector<double> row_keys;  ///< of all rows with a target, sorted
  /// What passes between operators, of some rows: [rows by key, columns].
  WholeTensors activations;
  std::vector<std::string> activation_order;  ///< their names in the order of computation
  /// Of which two tensor-parallel ranks that should hold the same bits did not.
  std::set<std::string> unequal_activations;
  /// Main gradients before any reduction, added up over the ranks here.
  WholeTensors local_gradients;
  WholeTensors first_weights;  ///< masters after step 1, where more follow
};

struct RunPlan {
  int steps = 1;
  /// Default: what the config names.
  std::function<std::unique_ptr<DataSource>(const Config&, const Layout&, DType)> make_source;
  /// A device to run on that stands before the config's own.
  std::function<std::unique_ptr<Device>(Device&)> decorate_device;
  /// Called after the initial weights are drawn, before step 1.
  std::function<void(RankContext&, TrainState&)> prepare;
  /// One row in so many is watched on its way through step 1.
  std::int64_t watch_every = 1;
};

/// What stands between the run under test and the real thing, and nothing else: the tests of verify
/// plant faults with it. Communicators are decorated by the World.
struct Decorators {
  std::function<std::unique_ptr<Device>(Device&)> device;
  std::function<std::unique_ptr<DataSource>(std::unique_ptr<DataSource>)> source;
  /// Called after the initial weights are drawn, before the plan's own `prepare`.
  std::function<void(RankContext&, TrainState&)> prepare;
};

/// Collective over `world`, whose size is the layout's. Rank 0 gets the whole outcome; the tensors
/// of the others are empty.
Outcome run_layout(World& world, const Config& config, const RunPlan& plan,
                   const Decorators& under_test = {});
/// The same steps on one rank, in this thread's process; not collective. Its micro-batches hold
/// everything that all data ranks' hold.
Outcome run_one_rank(Config config, std::int64_t accumulation, const RunPlan& plan);

/// A tensor of any floating type as doubles on the host.
std::vector<double> read_tensor(RankContext& rank, const Tensor& tensor);

}  // namespace tandem::verify
