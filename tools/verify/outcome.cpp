#include "tools/verify/outcome.h"

#include <bit>
#include <exception>

#include "tools/verify/host_values.h"
#include "tools/verify/probe.h"
#include "train/session.h"
#include "train/trainer.h"

namespace tandem::verify {

namespace {

/// Masters, or the main gradients of the same elements.
enum class What { kMasters, kGradients };

/// Adds up over all ranks what each owns: every element comes from exactly one rank, so nothing is
/// rounded. Kept by rank 0 alone.
std::vector<double> gather(RankContext& rank, const ParameterStore& store,
                           const Parameter& parameter, What what) {
  std::vector<double> whole(static_cast<std::size_t>(parameter.spec().shape.numel()), 0.0);
  const bool owner = (store.options().sharded || rank.layout.dp_rank() == 0) &&
                     (parameter.is_cut() || rank.layout.tp_rank() == 0);
  for (const ParameterShard& shard : parameter.shards) {
    const std::vector<double> part = read_tensor(
        rank, what == What::kMasters
                  ? shard.master
                  : parameter.main_grad.flat().slice(0, shard.start, shard.stop() - shard.start));
    if (owner) {
      parameter.for_each_run_in(
          shard.start, shard.stop(), [&](std::int64_t from, std::int64_t to, std::int64_t length) {
            std::copy_n(part.begin() + (from - shard.start), length, whole.begin() + to);
          });
    }
  }
  rank.control
      ->all_reduce(Tensor::of<double>(whole, {std::ssize(whole)}), {.label = "verify gather"})
      .wait_host();
  return rank.layout.rank == 0 ? whole : std::vector<double>();
}

WholeTensors gather_all(RankContext& rank, const TrainState& state, What what) {
  WholeTensors whole;
  for (const Parameter& parameter : state.store.parameters()) {
    whole[parameter.name()] = gather(rank, state.store, parameter, what);
  }
  return whole;
}

/// What fp16's loss scale, a power of two, multiplied in the step: gradients of weights, and of
/// activations, whose names say d_.
void unscale(Outcome& outcome, double loss_scale) {
  const auto divide = [&](std::vector<double>& values) {
    for (double& value : values) {
      value /= loss_scale;
    }
  };
  for (WholeTensors* tensors : {&outcome.gradients, &outcome.local_gradients}) {
    for (auto& [name, values] : *tensors) {
      divide(values);
    }
  }
  for (auto& [name, values] : outcome.activations) {
    if (name.find(" d_") != std::string::npos) {
      divide(values);
    }
  }
}

/// FNV-1a over the bits.
std::int64_t checksum(const std::vector<double>& values) {
  std::uint64_t sum = 0xcbf29ce484222325;
  for (const double value : values) {
    sum = (sum ^ std::bit_cast<std::uint64_t>(value)) * 0x100000001b3;
  }
  return std::bit_cast<std::int64_t>(sum);
}

/// Tells the probe of each step's micro-batches.
class WatchedSource final : public DataSource {
 public:
  WatchedSource(std::unique_ptr<DataSource> inner, Probe& probe)
      : inner_(std::move(inner)), probe_(&probe) {}

  std::span<const MicroBatch> fetch_step(std::int64_t consumed_samples) override {
    const auto batches = inner_->fetch_step(consumed_samples);
    probe_->expect(batches);
    return batches;
  }
  std::int64_t evaluation_batches() const override { return inner_->evaluation_batches(); }
  const MicroBatch& fetch_evaluation(std::int64_t index) override {
    return inner_->fetch_evaluation(index);
  }
  std::string describe() const override { return inner_->describe(); }

 private:
  std::unique_ptr<DataSource> inner_;
  Probe* probe_;
};

/// Every rank of a data-parallel group holds the same part, and every rank of all the same copy of
/// what is not cut. A copy differs from rank 0's, or from the group's first rank's.
std::vector<std::string> unequal_copies(RankContext& rank, const TrainState& state) {
  std::vector<std::string> unequal;
  for (const Parameter& parameter : state.store.parameters()) {
    const std::int64_t own = checksum(read_tensor(rank, parameter.weight));
    std::vector<std::int64_t> all(static_cast<std::size_t>(rank.layout.world()));
    rank.control
        ->all_gather(Tensor(const_cast<std::int64_t*>(&own), DType::kI64, {1}),
                     Tensor::of<std::int64_t>(all, {std::ssize(all)}), {.label = "verify copies"})
        .wait_host();
    for (int r = 0; r < rank.layout.world(); ++r) {
      const int first = parameter.is_cut() ? r % rank.layout.tp : 0;
      if (all[static_cast<std::size_t>(r)] != all[static_cast<std::size_t>(first)]) {
        unequal.push_back(parameter.name());
        break;
      }
    }
  }
  return unequal;
}

}  // namespace

std::vector<double> read_tensor(RankContext& rank, const Tensor& tensor) {
  return read_values(*rank.device, *rank.compute, tensor);
}

Outcome run_layout(World& world, const Config& config, const RunPlan& plan,
                   const Decorators& under_test) {
  const std::unique_ptr<Device> host = make_reference_device(1);
  Ledger ledger;
  std::vector<int> everyone = Layout{config.parallel.tp, config.parallel.dp, 0}.world_group();
  const auto control = world.make_group("verify", everyone, *host, &ledger, nullptr);
  Session session(world, config, *control, ledger, Logger(world.rank()));
  RankContext& rank = session.rank();
  std::vector<std::unique_ptr<Device>> decorated;
  for (const auto& decorate : {plan.decorate_device, under_test.device}) {
    if (decorate) {
      decorated.push_back(decorate(*rank.device));
      rank.device = decorated.back().get();
    }
  }
  rank.precision = precision_of(config, rank.device->kind());
  std::unique_ptr<DataSource> source =
      plan.make_source ? plan.make_source(config, rank.layout, rank.precision.storage)
                       : make_data_source(config, rank.layout, {.storage = rank.precision.storage});
  if (under_test.source) {
    source = under_test.source(std::move(source));
  }
  const std::int64_t rows = max_rows(config);
  Arena measured;
  const TrainState sizes(config, rank.layout, rank.precision, rows, measured);
  Arena arena(*rank.device, measured);
  TrainState state(config, rank.layout, rank.precision, rows, arena);
  Probe probe(*rank.device, config, rank.layout, state.store, plan.watch_every);
  rank.device = &probe;
  WatchedSource watched(std::move(source), probe);
  Trainer trainer(rank, config, state, watched);
  for (const auto& prepare : {under_test.prepare, plan.prepare}) {
    if (prepare) {
      prepare(rank, state);
    }
  }

  Outcome outcome;
  for (const Parameter& parameter : state.store.parameters()) {
    outcome.parameters.push_back(parameter.spec());
  }
  outcome.initial = gather_all(rank, state, What::kMasters);
  outcome.unequal_initial = unequal_copies(rank, state);
  for (int i = 0; i < plan.steps; ++i) {
    const StepResult step = trainer.step();
    trainer.finish_weights();
    outcome.losses.push_back(step.loss);
    outcome.grad_norms.push_back(step.grad_norm);
    outcome.tokens.push_back(static_cast<double>(step.tokens));
    if (i == 0) {
      outcome.gradients = gather_all(rank, state, What::kGradients);
      probe.gather(rank, outcome);
      unscale(outcome, step.loss_scale);
      if (plan.steps > 1) {
        outcome.first_weights = gather_all(rank, state, What::kMasters);
      }
    }
  }
  outcome.weights = gather_all(rank, state, What::kMasters);
  outcome.unequal_copies = unequal_copies(rank, state);
  return outcome;
}

Outcome run_one_rank(Config config, std::int64_t accumulation, const RunPlan& plan) {
  config.parallel.tp = 1;
  config.parallel.dp = 1;
  config.parallel.comm = CommChoice::kAuto;
  config.train.micro_batch = config.train.global_batch / accumulation;
  Outcome outcome;
  const auto thrown =
      run_local_world(1, {}, [&](World& world) { outcome = run_layout(world, config, plan); });
  if (thrown.front()) {
    std::rethrow_exception(thrown.front());
  }
  return outcome;
}

}  // namespace tandem::verify
