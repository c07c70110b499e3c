// Main gradients are summed over the data ranks once per bucket and step, on the last micro-batch.
#include "parallel/gradient_reducer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>

#include "layers/linear.h"
#include "tests/support/deferred_device.h"
#include "tests/support/network_fixture.h"

namespace tandem::test {

namespace {

std::unique_ptr<Device> deferred() {
  static std::atomic<std::uint64_t> seed{0};
  return testing::make_deferred_device(1, 1000 * ++seed);
}

/// Two blocks with two matrices each, and a bias; made on a data-parallel rank.
class Model {
 public:
  explicit Model(TestRank& rank)
      : rank_(&rank),
        store_(*rank.context.device,
               [&](Arena& arena) {
                 auto store = std::make_unique<ParameterStore>(rank.context.layout);
                 for (const std::string block : {"layers.0", "layers.1"}) {
                   store->add({.name = block + ".fc1.weight", .shape = {2, 3}, .block = block});
                   store->add({.name = block + ".fc2.weight", .shape = {3, 2}, .block = block});
                 }
                 store->add({.name = "bias", .shape = {5}});
                 store->allocate(arena, rank.context.precision, {});
                 return store;
               }),
        ones_(rank.context, DType::kF32, {16}, 1.0),
        reducer_(rank.context, *store_) {}

  const ParameterStore& store() const { return *store_; }
  GradientReducer& reducer() { return reducer_; }
  /// A micro-batch's backward: gradients of `value` everywhere, completed in backward's order.
  void backward(double value, Write write) {
    for (const GradientBucket& bucket : store_->buckets()) {
      for (const Parameter* parameter : bucket.parameters) {
        const Tensor& gradient = parameter->main_grad;
        // value * 1 as a product: queued, as a real gradient is.
        rank_->context.device->gemm(
            *rank_->context.compute,
            {.a = scalar(value),
             .b = (*ones_).first(gradient.numel()).reshape({1, gradient.numel()}),
             .c = gradient.reshape({1, gradient.numel()}),
             .write = write});
        reducer_.ready(*parameter);
      }
    }
  }
  /// A step whose micro-batches have these gradients; what the main gradients end as.
  double step(const std::vector<double>& micro_batches) {
    for (std::size_t m = 0; m < micro_batches.size(); ++m) {
      std::optional<GradientReducer::NoSync> no_sync;
      if (m + 1 < micro_batches.size()) {
        no_sync.emplace(reducer_);
      }
      backward(micro_batches[m], m == 0 ? Write::kOverwrite : Write::kAccumulate);
    }
    reducer_.finish();
    rank_->context.compute->synchronize();
    return common_gradient();
  }
  /// The value that all gradient elements have.
  double common_gradient() const {
    const RankContext& rank = rank_->context;
    const double value = get(*fetch(rank, store_->parameters().front().main_grad), 0);
    for (const Parameter& parameter : store_->parameters()) {
      for (const double element : values_of(*fetch(rank, parameter.main_grad))) {
        EXPECT_EQ(element, value) << parameter.name();
      }
    }
    return value;
  }
  std::uint64_t collectives() const { return rank_->context.ledger->calls(); }

 private:
  /// [1, 1], alive as long as the model: kernels may run late.
  Tensor scalar(double value) {
    scalars_.emplace_back(rank_->context, DType::kF32, Shape{1, 1}, value);
    return *scalars_.back();
  }

  TestRank* rank_;
  Built<ParameterStore> store_;
  DeviceTensor ones_;
  std::vector<DeviceTensor> scalars_;
  GradientReducer reducer_;
};

class Reducer : public ::testing::TestWithParam<std::pair<const char*, DeviceFactory>> {
 protected:
  /// Runs `body` on every one of `ranks` data ranks.
  static void on(int ranks, const std::function<void(Model&, int rank)>& body) {
    run_ranks(
        ranks,
        [&](World& world, Device& device) {
          TestRank rank(world, device, 1, kFloat);
          Model model(rank);
          body(model, world.rank());
          rank.context.compute->synchronize();
        },
        GetParam().second);
  }
};

// B31: a reduction of the first micro-batch's gradient only would give 9 and 13.
TEST_P(Reducer, SumsAllMicroBatchesOfAllRanks) {
  on(2, [](Model& model, int rank) {
    EXPECT_EQ(model.step(rank == 0 ? std::vector<double>{1, 3} : std::vector<double>{2, 5}), 11.0);
  });
}

// B36
TEST_P(Reducer, SumsThreeMicroBatches) {
  on(2, [](Model& model, int) { EXPECT_EQ(model.step({1, 2, 4}), 14.0); });
}

// B34: the only micro-batch is also the last one, step after step.
TEST_P(Reducer, SumsTheOnlyMicroBatch) {
  on(2, [](Model& model, int rank) {
    for (int step = 0; step < 10; ++step) {
      EXPECT_EQ(model.step({1.0 + rank + step}), 3.0 + 2 * step);
    }
  });
}

TEST_P(Reducer, CallsOneAllReducePerBucketAndStepHoweverManyMicroBatches) {
  for (const int ranks : {2, 4}) {
    on(ranks, [&](Model& model, int) {
      const std::uint64_t buckets = model.store().buckets().size();
      ASSERT_EQ(buckets, 3u);
      EXPECT_EQ(model.step({1}), 1.0 * ranks);
      EXPECT_EQ(model.collectives(), buckets);
      EXPECT_EQ(model.step({1, 1, 1, 1}), 4.0 * ranks);
      EXPECT_EQ(model.collectives(), 2 * buckets);
    });
  }
}

TEST_P(Reducer, CallsNothingInsideNoSync) {
  on(2, [](Model& model, int) {
    EXPECT_TRUE(model.reducer().reduces());
    const GradientReducer::NoSync no_sync(model.reducer());
    model.backward(1.0, Write::kOverwrite);
    EXPECT_EQ(model.collectives(), 0u);
    EXPECT_FALSE(model.reducer().reduces());
  });
}

TEST_P(Reducer, StartsABucketOnceAllItsParametersAreReady) {
  on(2, [](Model& model, int) {
    std::uint64_t complete = 0;
    for (const GradientBucket& bucket : model.store().buckets()) {
      for (const Parameter* parameter : bucket.parameters) {
        EXPECT_EQ(model.collectives(), complete) << parameter->name();
        model.reducer().ready(*parameter);
      }
      EXPECT_EQ(model.collectives(), ++complete) << bucket.name;
    }
    model.reducer().finish();
  });
}

// B33
TEST_P(Reducer, AnInnerNoSyncDoesNotEndTheOuterOne) {
  on(2, [](Model& model, int rank) {
    {
      const GradientReducer::NoSync outer(model.reducer());
      { const GradientReducer::NoSync inner(model.reducer()); }
      model.backward(1.0 + rank, Write::kOverwrite);
      EXPECT_EQ(model.collectives(), 0u);
    }
    model.backward(1.0, Write::kAccumulate);
    model.reducer().finish();
  });
}

// B33
TEST_P(Reducer, AnExceptionInsideNoSyncLeavesTheNextStepWhole) {
  on(2, [](Model& model, int rank) {
    try {
      const GradientReducer::NoSync no_sync(model.reducer());
      model.backward(100.0 * rank, Write::kOverwrite);
      throw std::runtime_error("bad row");
    } catch (const std::runtime_error&) {
      model.reducer().reset();
    }
    EXPECT_EQ(model.step({1.0 + rank, 2.0}), 7.0);
  });
}

INSTANTIATE_TEST_SUITE_P(Devices, Reducer,
                         ::testing::Values(std::pair{"Cpu", DeviceFactory(one_thread_cpu)},
                                           std::pair{"Deferred", DeviceFactory(deferred)}),
                         [](const auto& place) { return std::string(place.param.first); });

void on_one_rank(const std::function<void(Model&)>& body) {
  run_ranks(1, [&](World& world, Device& device) {
    TestRank rank(world, device, 1, kFloat);
    Model model(rank);
    body(model);
  });
}

TEST(ReducerProtocol, RefusesAGradientThatIsReadyTwice) {
  on_one_rank([](Model& model) {
    // Of two parameters of one bucket: counting alone would take the second call for the other one.
    const Parameter& first = *model.store().buckets()[0].parameters[0];
    model.reducer().ready(first);
    EXPECT_THROW(model.reducer().ready(first), InternalError);
  });
}

// B112: a parameter that gets no gradient is reported in the first step.
TEST(ReducerProtocol, RefusesAStepThatMissesAGradient) {
  on_one_rank([](Model& model) {
    for (const GradientBucket& bucket : model.store().buckets()) {
      for (const Parameter* parameter : bucket.parameters) {
        if (parameter->name() != "layers.0.fc2.weight") {
          model.reducer().ready(*parameter);
        }
      }
    }
    EXPECT_THROW(model.reducer().finish(), InternalError);
    model.reducer().reset();
    EXPECT_EQ(model.step({1}), 1.0);
  });
}

TEST(ReducerProtocol, ItsBucketsAreContiguousOnePerBlockInReverseOrderOfUse) {
  on_one_rank([](Model& model) {
    std::vector<std::string> names;
    for (const GradientBucket& bucket : model.store().buckets()) {
      names.push_back(bucket.name);
      std::size_t bytes = 0;
      for (const Parameter* parameter : bucket.parameters) {
        EXPECT_GE(parameter->main_grad.data, bucket.main_grad.data);
        EXPECT_LE(parameter->main_grad.data + parameter->main_grad.bytes(),
                  bucket.main_grad.data + bucket.main_grad.bytes());
        bytes += parameter->main_grad.bytes();
      }
      EXPECT_TRUE(bucket.main_grad.is_contiguous());
      EXPECT_GE(bucket.main_grad.bytes(), bytes);
    }
    EXPECT_EQ(names, (std::vector<std::string>{"layers.1", "layers.0", "vectors"}));
    EXPECT_EQ(model.store().buckets()[0].parameters[0]->name(), "layers.1.fc2.weight");
  });
}

/// y = w x with w = 1 under the loss mean((y - target)^2) / 2 over `examples` examples, of which
/// this rank has those given; its main gradient after `reduce` (or before any reduction).
double least_squares(TestRank& rank, const std::vector<double>& x,
                     const std::vector<double>& target, double examples, bool reduce) {
  struct Regression {
    explicit Regression(const Layout& layout)
        : store(layout),
          layer(store, {.name = "w", .block = "w", .in = 1, .out = 1, .bias = false}) {}
    ParameterStore store;
    ColumnParallelLinear layer;
  };
  const Built<Regression> model(*rank.context.device, [&](Arena& arena) {
    auto regression = std::make_unique<Regression>(rank.context.layout);
    regression->store.allocate(arena, kFloat, {});
    return regression;
  });
  const Parameter& weight = model->store.find("w.weight");
  set_values(weight, [](std::int64_t) { return 1.0; });
  const std::int64_t rows = std::ssize(x);
  const HostTensor input(DType::kF32, {rows, 1}, x), expected(DType::kF32, {rows, 1}, target);
  const HostTensor y(DType::kF32, {rows, 1}), loss(DType::kF64, {1});
  GradientReducer reducer(rank.context, model->store);
  const Pass pass{.rank = &rank.context, .rows = rows, .reducer = &reducer};
  std::optional<GradientReducer::NoSync> no_sync;
  if (!reduce) {
    no_sync.emplace(reducer);
  }
  ColumnParallelLinear::Context context;
  model->layer.forward(pass, context, *input, *y);
  pass.device().mean_squared_error(
      pass.compute(),
      {.y = *y, .target = *expected, .d_y = *y, .loss_sum = *loss, .scale = 0.5 / examples});
  model->layer.backward_weight(pass, context, *y);
  if (reduce) {
    reducer.finish();
  }
  pass.compute().synchronize();
  return get(weight.main_grad.flat(), 0);
}

TEST(DataParallel, TwoRanksWithHalfTheExamplesHaveTheGradientOfTheFullBatch) {
  run_ranks(2, [](World& world, Device& device) {
    TestRank rank(world, device, 1, kFloat);
    const bool first = world.rank() == 0;
    const std::vector<double> x = first ? std::vector<double>{1, 2} : std::vector<double>{3, 4};
    const std::vector<double> target =
        first ? std::vector<double>{0, 1} : std::vector<double>{1, 2};
    EXPECT_EQ(least_squares(rank, x, target, 2, false), first ? 1.5 : 7.0);
    EXPECT_EQ(least_squares(rank, x, target, 4, true), 4.25);
  });
  run_ranks(1, [](World& world, Device& device) {
    TestRank rank(world, device, 1, kFloat);
    EXPECT_EQ(least_squares(rank, {1, 2, 3, 4}, {0, 1, 1, 2}, 4, true), 4.25);
  });
}

}  // namespace

}  // namespace tandem::test
