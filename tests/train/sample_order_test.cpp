#include "train/data/sample_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace tandem {
namespace {

std::vector<std::int64_t> epoch_of(const SampleOrder& order, std::int64_t epoch, std::int64_t n) {
  std::vector<std::int64_t> samples;
  for (std::int64_t i = 0; i < n; ++i) {
    samples.push_back(order.in_epoch(epoch, i));
  }
  return samples;
}

bool is_permutation_of_range(std::vector<std::int64_t> samples) {
  std::sort(samples.begin(), samples.end());
  std::vector<std::int64_t> range(samples.size());
  std::iota(range.begin(), range.end(), 0);
  return samples == range;
}

// B122: each epoch a permutation, for sizes at and between the powers of four of the network.
TEST(SampleOrder, EveryEpochIsAPermutation) {
  for (const std::int64_t n : {1, 2, 3, 4, 5, 10, 16, 17, 1000, 1024, 31102}) {
    const SampleOrder order(1234, n, true);
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      EXPECT_TRUE(is_permutation_of_range(epoch_of(order, epoch, n))) << n << ", epoch " << epoch;
    }
  }
}

// B122: order(epoch 0) != order(epoch 1), and a function of (seed, epoch) alone.
TEST(SampleOrder, DependsOnSeedAndEpochOnly) {
  const std::int64_t n = 1000;
  const SampleOrder order(1234, n, true);
  EXPECT_EQ(epoch_of(order, 0, n), epoch_of(SampleOrder(1234, n, true), 0, n));
  EXPECT_NE(epoch_of(order, 0, n), epoch_of(order, 1, n));
  EXPECT_NE(epoch_of(order, 0, n), epoch_of(SampleOrder(1235, n, true), 0, n));
  EXPECT_NE(epoch_of(order, 0, n), epoch_of(SampleOrder(1234 + (1LL << 32), n, true), 0, n));
}

TEST(SampleOrder, WithoutShuffleIsTheCorpusOrder) {
  const SampleOrder order(1234, 10, false);
  for (std::int64_t position = 0; position < 30; ++position) {
    EXPECT_EQ(order.at(position), position % 10);
  }
}

TEST(SampleOrder, EpochsFollowEachOtherWithoutAGap) {
  const SampleOrder order(7, 10, true);
  for (std::int64_t position = 0; position < 30; ++position) {
    EXPECT_EQ(order.at(position), order.in_epoch(position / 10, position % 10));
  }
}

// A shuffle that left most neighbours together would be a permutation too: of n - 1 pairs of
// neighbours about one stays, and the first half of an epoch is about half from each half.
TEST(SampleOrder, MixesWell) {
  const std::int64_t n = 31102;
  const auto samples = epoch_of(SampleOrder(1234, n, true), 0, n);
  std::int64_t neighbours = 0, low = 0;
  for (std::size_t i = 1; i < samples.size(); ++i) {
    neighbours += samples[i] == samples[i - 1] + 1;
    low += i <= samples.size() / 2 && samples[i] < n / 2;
  }
  EXPECT_LT(neighbours, 10);
  EXPECT_NEAR(static_cast<double>(low), static_cast<double>(n) / 4, 300);  // 6 sigma
}

}  // namespace
}  // namespace tandem
