// The global norm counts every value of the model once, and every rank clips by the same factor.
#include "optim/gradient_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "optim/optimizer.h"
#include "tests/support/network_fixture.h"

namespace tandem::test {

namespace {

Built<ParameterStore> one_of_each(TestRank& rank) {
  return Built<ParameterStore>(*rank.context.device, [&](Arena& arena) {
    auto store = std::make_unique<ParameterStore>(rank.context.layout);
    store->add({.name = "fc1.weight", .shape = {2, 1}, .cut_dimension = 0, .block = "b"});
    store->add({.name = "fc1.bias", .shape = {2}, .cut_dimension = 0});
    store->add({.name = "norm.weight", .shape = {9}, .init_value = 1.0});
    store->allocate(arena, rank.context.precision, {.moments = 1});
    return store;
  });
}

double global_norm(TestRank& rank, const ParameterStore& store) {
  const HostTensor sum(DType::kF64, {1}, 1e9);  // overwritten
  owned_sum_of_squares(rank.context, store, *sum);
  rank.context.tensor_parallel->all_reduce(*sum, {.after = rank.context.compute}).wait_host();
  return std::sqrt(get(*sum, 0));
}

// B21, B22: counted on both ranks the replicated gradient would give 17.69; without the reduction
// the ranks would see 12.37 and 12.65.
TEST(GradientNorm, CountsReplicatedParametersOnceAndIsTheSameOnEveryRank) {
  std::mutex mutex;
  std::vector<std::vector<double>> clipped;
  run_ranks(2, [&](World& world, Device& device) {
    TestRank rank(world, device, 2, kFloat);
    const auto store = one_of_each(rank);
    put(store->find("fc1.weight").main_grad.flat(), 0, world.rank() == 0 ? 3.0 : 0.0);
    put(store->find("fc1.bias").main_grad, 0, world.rank() == 0 ? 0.0 : 4.0);
    for (std::int64_t i = 0; i < 9; ++i) {
      put(store->find("norm.weight").main_grad, i, 4.0);  // norm 12
    }
    const double norm = global_norm(rank, *store);
    EXPECT_EQ(norm, 13.0);
    set_values(store->find("norm.weight"), [](std::int64_t) { return 0.0; });
    update_parameters(device, *rank.context.compute, *store,
                      {.kind = OptimizerKind::kSgd, .weight_decay = 0.0, .momentum = 0.0},
                      {.lr = 1.0, .grad_scale = clip_factor(norm, 1.0)});
    rank.context.compute->synchronize();
    const std::scoped_lock lock(mutex);
    clipped.push_back(values_of(store->find("norm.weight").weight));
  });
  ASSERT_EQ(clipped.size(), 2u);
  EXPECT_EQ(clipped[0], clipped[1]);
  EXPECT_NEAR(clipped[0][0], -4.0 / 13.0, 1e-6);
}

TEST(GradientNorm, OneRankAndMoreRanksAgree) {
  for (const int tp : {1, 2, 4}) {
    run_ranks(tp, [&](World& world, Device& device) {
      TestRank rank(world, device, tp, kFloat);
      const NetworkOptions options{
          .vocab = 10, .context = 3, .hidden = 4, .ffn = 8, .layers = 2, .max_rows = 8};
      NetworkRun network(rank, options, 0.0);
      double squares = 0.0;
      for (const Parameter& parameter : network.store().parameters()) {
        for (std::int64_t i = 0; i < parameter.spec().shape.numel(); ++i) {
          squares += static_cast<double>(i % 7) * static_cast<double>(i % 7);
        }
        parameter.for_each_run([&](std::int64_t local, std::int64_t global, std::int64_t length) {
          for (std::int64_t i = 0; i < length; ++i) {
            put(parameter.main_grad.flat(), local + i, static_cast<double>((global + i) % 7));
          }
        });
      }
      EXPECT_NEAR(global_norm(rank, network.store()), std::sqrt(squares), 1e-9);
    });
  }
}

// B26: a value that is not finite on one rank is known to all.
TEST(GradientNorm, CarriesWhatIsNotFiniteToEveryRank) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    run_ranks(2, [&](World& world, Device& device) {
      TestRank rank(world, device, 2, kFloat);
      const auto store = one_of_each(rank);
      if (world.rank() == 1) {
        put(store->find("fc1.weight").main_grad.flat(), 0, bad);
      }
      EXPECT_FALSE(std::isfinite(global_norm(rank, *store)));
    });
  }
}

TEST(ClipFactor, ShrinksToTheLargestNormAndNeverGrows) {
  EXPECT_NEAR(clip_factor(13.0, 1.0), 1.0 / 13.0, 1e-7);
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
}

// B27
TEST(ClipFactor, IsOneWhereAllGradientsAreZero) { EXPECT_EQ(clip_factor(0.0, 1.0), 1.0); }

// B28: 0 = off
TEST(ClipFactor, IsOneWhereClippingIsOff) {
  EXPECT_EQ(clip_factor(3.0, 0.0), 1.0);
  EXPECT_EQ(clip_factor(1e30, 0.0), 1.0);
}

}  // namespace

}  // namespace tandem::test
