// Dropout as the block applies it: a mask is a function of the seed, the update, the layer and the
// global row, so it is the same however rows are spread over ranks.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/network_fixture.h"

namespace tandem::test {

namespace {

struct BlockAlone {
  BlockAlone(const Layout& layout, const MlpBlock::Options& options)
      : store(layout), block(store, options) {}
  ParameterStore store;
  MlpBlock block;
  MlpBlock::Context context;
  BlockScratch scratch;
};

struct MaskSetup {
  std::int64_t rows = 64;
  std::int64_t hidden = 64;
  int tp = 1;
  bool sequence_parallel = false;
  double p = 0.5;
  std::uint32_t index = 0;
  std::uint64_t seed = 11;
  std::uint32_t update = 1;
};

/// What the block makes of zeros when its weights are 0 and its last bias is 1: the mask / (1 - p).
/// With sequence parallelism the ranks' shards are put together.
std::vector<double> mask(const MaskSetup& setup) {
  const std::int64_t shard = setup.sequence_parallel ? setup.rows / setup.tp : setup.rows;
  std::vector<std::vector<double>> outputs(static_cast<std::size_t>(setup.tp));
  run_ranks(setup.tp, [&](World& world, Device& device) {
    TestRank rank(world, device, setup.tp, kFloat);
    const MlpBlock::Options options{.name = "layers.0",
                                    .index = setup.index,
                                    .hidden = setup.hidden,
                                    .ffn = 4,
                                    .sequence_parallel = setup.sequence_parallel};
    const BlockShape shape{.max_rows = setup.rows,
                           .shard_rows = shard,
                           .hidden = setup.hidden,
                           .local_ffn = 4 / setup.tp,
                           .sequence_parallel = setup.sequence_parallel,
                           .dropout = true};
    const Built<BlockAlone> built(device, [&](Arena& arena) {
      auto alone = std::make_unique<BlockAlone>(rank.context.layout, options);
      alone->store.allocate(arena, kFloat, {});
      alone->context = alone->block.make_context(arena, kFloat, shape);
      alone->scratch = BlockScratch(arena, kFloat, shape);
      return alone;
    });
    set_values(built->store.find("layers.0.fc2.bias"), [](std::int64_t) { return 1.0; });
    std::vector<double> numbers(static_cast<std::size_t>(setup.rows));
    std::iota(numbers.begin(), numbers.end(), 1000.0);
    const HostTensor keys(DType::kI64, {setup.rows}, numbers);
    const HostTensor x(DType::kF32, {shard, setup.hidden});
    const Pass pass{.rank = &rank.context,
                    .rows = setup.rows,
                    .row_keys = *keys,
                    .dropout = {.p = setup.p, .seed = setup.seed, .update = setup.update}};
    const Tensor out = built->block.forward(pass, built->context, built->scratch, *x);
    pass.compute().synchronize();
    outputs[static_cast<std::size_t>(world.rank())] = values_of(out);
  });
  if (!setup.sequence_parallel) {
    for (const auto& output : outputs) {
      EXPECT_EQ(output, outputs[0]) << "the ranks' masks differ";
    }
    return outputs[0];
  }
  std::vector<double> whole;
  for (const auto& output : outputs) {
    whole.insert(whole.end(), output.begin(), output.end());
  }
  return whole;
}

double agreement(std::span<const double> a, std::span<const double> b) {
  double same = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    same += a[i] == b[i] ? 1.0 : 0.0;
  }
  return same / static_cast<double>(a.size());
}

// B49
TEST(BlockDropout, TokenShardsHaveMasksOfTheirOwnWhichTogetherAreTheMaskOfOneRank) {
  const std::vector<double> alone = mask({});
  const std::vector<double> gathered = mask({.tp = 2, .sequence_parallel = true});
  EXPECT_EQ(gathered, alone);
  EXPECT_EQ(mask({.tp = 2}), alone);
  const std::span<const double> both = gathered;
  EXPECT_NEAR(agreement(both.first(both.size() / 2), both.last(both.size() / 2)), 0.5, 0.05);
}

TEST(BlockDropout, LayersUpdatesAndSeedsHaveMasksOfTheirOwn) {
  const std::vector<double> one = mask({});
  EXPECT_NEAR(agreement(mask({.index = 1}), one), 0.5, 0.05);
  EXPECT_NEAR(agreement(mask({.update = 2}), one), 0.5, 0.05);
  EXPECT_NEAR(agreement(mask({.seed = 12}), one), 0.5, 0.05);
}

// B51
TEST(BlockDropout, KeepsTheMeanAndDependsOnNoAddress) {
  const MaskSetup setup{.rows = 1000, .hidden = 1000, .p = 0.1};
  const std::vector<double> first = mask(setup);
  double sum = 0.0;
  for (const double value : first) {
    ASSERT_TRUE(value == 0.0 || value == static_cast<double>(1.1111112f)) << value;
    sum += value;
  }
  EXPECT_NEAR(sum / 1e6, 1.0, 0.003);
  const HostTensor elsewhere(DType::kF32, {12345});  // other addresses for what comes next
  EXPECT_EQ(mask(setup), first);
}

TEST(BlockDropout, WithoutDropoutNothingChanges) {
  EXPECT_EQ(mask({.p = 0.0}), std::vector<double>(64 * 64, 1.0));
}

}  // namespace

}  // namespace tandem::test
