#include "tests/train/training.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <deque>
#include <mutex>

#include "core/log.h"
#include "train/agree.h"
#include "train/data/source.h"
#include "train/session.h"

namespace tandem::test {

namespace {

std::vector<double> on_host(RankContext& rank, const Tensor& tensor) {
  std::vector<std::byte> bytes(tensor.bytes());
  const Tensor host(bytes.data(), tensor.dtype, {tensor.numel()});
  rank.device->copy(*rank.compute, tensor.flat(), host);
  rank.compute->synchronize();
  std::vector<double> values(static_cast<std::size_t>(tensor.numel()));
  visit_floating(tensor.dtype, [&](auto type) {
    const auto* from = host.as<decltype(type)>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<double>(from[i]);
    }
  });
  return values;
}

/// NaN equals NaN of the same bits.
std::uint64_t bits(double value) { return std::bit_cast<std::uint64_t>(value); }

/// What the ranks hand in, under one lock.
class Gathering {
 public:
  /// Places elements from `start` of a rank's part of a parameter; the same element from another
  /// rank must have its bits.
  void add(const std::string& what, const Parameter& parameter, std::int64_t start,
           const std::vector<double>& elements, WholeTensors& into) {
    const std::lock_guard lock(mutex_);
    auto& whole = into[parameter.name()];
    whole.resize(static_cast<std::size_t>(parameter.spec().shape.numel()), std::nan(""));
    parameter.for_each_run_in(start, start + std::ssize(elements),
                              [&](std::int64_t from, std::int64_t to, std::int64_t length) {
                                for (std::int64_t i = 0; i < length; ++i) {
                                  double& element = whole[static_cast<std::size_t>(to + i)];
                                  const double value =
                                      elements[static_cast<std::size_t>(from - start + i)];
                                  if (std::isnan(element)) {
                                    element = value;
                                  } else {
                                    ASSERT_EQ(element, value) << what << " of " << parameter.name()
                                                              << " differs between ranks";
                                  }
                                }
                              });
  }

  std::mutex& mutex() { return mutex_; }

 private:
  std::mutex mutex_;
};

enum class What { kWeights, kGradients };

void gather(RankContext& rank, const TrainState& state, What what, Gathering& gathering,
            WholeTensors& into) {
  for (const Parameter& parameter : state.store.parameters()) {
    for (const ParameterShard& shard : parameter.shards) {
      const Tensor gradient =
          parameter.main_grad.flat().slice(0, shard.start, shard.stop() - shard.start);
      gathering.add(what == What::kWeights ? "weight" : "gradient", parameter, shard.start,
                    on_host(rank, what == What::kWeights ? shard.master : gradient), into);
    }
  }
}

void expect_same(const StepResult& a, const StepResult& b) {
  EXPECT_EQ(bits(a.loss), bits(b.loss)) << "step " << a.step;
  EXPECT_EQ(bits(a.grad_norm), bits(b.grad_norm)) << "step " << a.step;
  EXPECT_EQ(a.lr, b.lr);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.outcome, b.outcome);
  EXPECT_EQ(a.skipped_steps, b.skipped_steps);
}

class ScriptedSource final : public DataSource {
 public:
  ScriptedSource(std::int64_t hidden, std::vector<FfnRows> micro_batches, DType storage)
      : storage_(storage) {
    for (FfnRows& batch : micro_batches) {
      const std::int64_t rows = batch.tokens + batch.padding;
      batch.input.resize(static_cast<std::size_t>(rows * hidden), 0.0f);
      batch.expected.resize(static_cast<std::size_t>(rows * hidden), 0.0f);
      keys_.emplace_back(static_cast<std::size_t>(rows), -1);
      batches_.push_back({.rows = rows,
                          .tokens = batch.tokens,
                          .row_keys = Tensor::of<std::int64_t>(keys_.back(), {rows}),
                          .input = stored(batch.input, {rows, hidden}),
                          .expected = stored(batch.expected, {rows, hidden})});
    }
  }
  std::span<const MicroBatch> fetch_step(std::int64_t) override { return batches_; }
  std::int64_t evaluation_batches() const override { return 0; }
  const MicroBatch& fetch_evaluation(std::int64_t) override { return batches_.front(); }
  std::string describe() const override { return "scripted"; }

 private:
  Tensor stored(const std::vector<float>& values, const Shape& shape) {
    memory_.emplace_back(values.size() * size_of(storage_));
    const Tensor tensor(memory_.back().data(), storage_, shape);
    visit_floating(storage_, [&](auto type) {
      std::transform(values.begin(), values.end(), tensor.as<decltype(type)>(),
                     [](float value) { return static_cast<decltype(type)>(value); });
    });
    return tensor;
  }

  DType storage_;
  std::deque<std::vector<std::byte>> memory_;
  std::vector<std::vector<std::int64_t>> keys_;
  std::vector<MicroBatch> batches_;
};

}  // namespace

Config small_config() {
  Config config;
  config.name = "small";
  config.threads = 1;
  config.model = {.vocab_size = 50, .context = 4, .hidden = 16, .ffn = 32, .layers = 2};
  config.data = {.format = DataFormat::kSynthetic, .seq_len = 24, .valid_fraction = 0.0};
  config.train = {.steps = 20, .micro_batch = 8, .global_batch = 8, .eval_every = 0};
  config.optim.lr = 1e-2;
  config.optim.schedule = {.warmup_steps = 2, .decay_steps = 20, .min_lr = 1e-3};
  return config;
}

Config grid_config() {
  Config config = small_config();
  config.train.global_batch = 16;
  return config;
}

Config with_layout(Config config, int tp, int dp, std::int64_t accumulation) {
  config.parallel.tp = tp;
  config.parallel.dp = dp;
  config.train.micro_batch = config.train.global_batch / (dp * accumulation);
  EXPECT_EQ(config.accumulation(), accumulation);
  return config;
}

namespace {

/// Weights that several ranks hold have the same bits on all of them: the smallest and the largest
/// checksum over the ranks agree.
void expect_same_replicas(const RankContext& rank, const TrainState& state, Communicator& data,
                          Communicator& all) {
  std::vector<std::int64_t> cut, replicated;
  for (const Parameter& parameter : state.store.parameters()) {
    std::int64_t sum = 0;
    const Tensor& weight = parameter.weight;
    std::vector<std::byte> bytes(weight.bytes());
    rank.device->copy(*rank.compute, weight.flat(),
                      Tensor(bytes.data(), weight.dtype, {weight.numel()}));
    rank.compute->synchronize();
    for (const std::byte byte : bytes) {  // FNV-1a, kept below 2^62
      sum = ((sum ^ static_cast<std::int64_t>(byte)) * 0x100000001b3) & 0x3fffffffffffffff;
    }
    (parameter.is_cut() ? cut : replicated).push_back(sum);
  }
  const auto compare = [](Communicator& group, const std::vector<std::int64_t>& sums) {
    std::vector<std::int64_t> least = sums, most = sums;
    const Shape shape = {std::ssize(sums)};
    group.all_reduce(Tensor::of<std::int64_t>(least, shape), {.op = ReduceOp::kMin}).wait_host();
    group.all_reduce(Tensor::of<std::int64_t>(most, shape), {.op = ReduceOp::kMax}).wait_host();
    EXPECT_EQ(least, most) << "copies of a weight differ in group " << group.name();
  };
  compare(data, cut);
  compare(all, replicated);
}

}  // namespace

static void train_as_rank(World& world, const Config& config, const TrainingOptions& options,
                          Gathering& gathering, Training& training) {
  const auto host = make_reference_device(1);
  Ledger ledger;
  const auto control = world.make_group("control", everyone(world), *host, &ledger, nullptr);
  const Logger log(world.rank());
  Session session(world, config, *control, ledger, log, options.make_device());
  RankContext& rank = session.rank();
  const auto data = world.make_group("test dp", rank.layout.dp_group(), *host, nullptr, nullptr);
  const auto all = world.make_group("test all", everyone(world), *host, nullptr, nullptr);
  rank.precision = precision_of(config, rank.device->kind());
  const auto source = options.make_source ? options.make_source(config, rank.layout)
                                          : make_data_source(config, rank.layout,
                                                             {.storage = rank.precision.storage});
  Arena measured;
  TrainState(config, rank.layout, rank.precision, max_rows(config), measured);
  Arena arena(*rank.device, measured);
  TrainState state(config, rank.layout, rank.precision, max_rows(config), arena);
  Trainer trainer(rank, config, state, *source);
  if (options.prepare) {
    options.prepare(rank, state);
  }
  if (options.resumed) {
    trainer.restore(*options.resumed);
  }
  if (options.observe) {
    gather(rank, state, What::kWeights, gathering, training.initial);
  }
  for (int i = 0; i < options.steps; ++i) {
    const std::uint64_t calls = ledger.calls();
    ledger.set_phase(JobPhase::kStep);
    const StepResult result = trainer.step();
    ledger.set_phase(JobPhase::kOther);
    {
      const std::lock_guard lock(gathering.mutex());
      if (options.inspect) {
        options.inspect(rank, state, result);
      }
      if (training.steps.size() < static_cast<std::size_t>(result.step)) {
        training.steps.push_back(result);
        training.collectives.push_back(ledger.calls() - calls);
      }
      expect_same(result, training.steps[static_cast<std::size_t>(i)]);
    }
    if (options.observe) {
      trainer.finish_weights();
      expect_same_replicas(rank, state, *data, *all);
    }
    if (options.after_step) {
      options.after_step(result);
      all->barrier({.label = "test"}).wait_host();
    }
  }
  if (options.observe) {
    gather(rank, state, What::kWeights, gathering, training.weights);
    gather(rank, state, What::kGradients, gathering, training.gradients);
  }
  if (options.evaluate) {
    const EvaluationResult evaluation = trainer.evaluate();
    const std::lock_guard lock(gathering.mutex());
    training.evaluation = evaluation;
  }
}

Training train(const Config& config, const TrainingOptions& options) {
  Training training;
  Gathering gathering;
  run_ranks(config.world(), [&](World& world, Device&) {
    train_as_rank(world, config, options, gathering, training);
  });
  return training;
}

Training train_in(World& world, const Config& config, const TrainingOptions& options) {
  Training training;
  Gathering gathering;
  train_as_rank(world, config, options, gathering, training);
  return training;
}

void expect_equal_training(const Training& layout, const Training& one) {
  for (const auto& [name, whole] : layout.initial) {
    const auto& expected = one.initial.at(name);
    ASSERT_EQ(whole.size(), expected.size()) << name;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      if (!std::isnan(whole[i])) {  // another rank's part
        ASSERT_EQ(whole[i], expected[i]) << "initial " << name << "[" << i << "]";
      }
    }
  }
  ASSERT_EQ(layout.steps.size(), one.steps.size());
  EXPECT_EQ(layout.steps[0].tokens, one.steps[0].tokens);
  EXPECT_NEAR(layout.steps[0].loss / one.steps[0].loss, 1.0, 1e-6);
  EXPECT_NEAR(layout.steps[0].grad_norm / one.steps[0].grad_norm, 1.0, 1e-6);
  EXPECT_NEAR(layout.steps.back().loss / one.steps.back().loss, 1.0, 1e-4);
}

double worst_difference(const WholeTensors& a, const WholeTensors& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0.0;
  for (const auto& [name, values] : a) {
    const auto& other = b.at(name);
    EXPECT_EQ(values.size(), other.size()) << name;
    double difference = 0.0;
    double norm = 0.0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      difference += (values[i] - other[i]) * (values[i] - other[i]);
      norm += other[i] * other[i];
    }
    if (difference > 0.0) {
      worst = std::max(worst, std::sqrt(difference / norm));
    }
  }
  return worst;
}

std::unique_ptr<DataSource> scripted_source(std::int64_t hidden, std::vector<FfnRows> micro_batches,
                                            DType storage) {
  return std::make_unique<ScriptedSource>(hidden, std::move(micro_batches), storage);
}

}  // namespace tandem::test
