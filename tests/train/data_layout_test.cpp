// Who reads which sample: data ranks share a step, tensor-parallel ranks see the same rows, epochs
// and resumes follow from the position alone, an evaluation sees each held-out sample once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/train/data_test_util.h"
#include "train/data/step_rule.h"

namespace tandem {
namespace {

using testing::samples_of;
using testing::text_config;
using testing::TextFile;
using Samples = std::vector<std::int64_t>;

/// `count` documents of different lengths, one sample each.
std::string documents(int count) {
  std::string text;
  for (int d = 0; d < count; ++d) {
    text +=
        std::string(static_cast<std::size_t>(1 + d % 5), static_cast<char>('a' + d % 26)) + "\n";
  }
  return text;
}

Config batch_config(const TextFile& file, int tp, int dp, std::int64_t micro, std::int64_t global) {
  Config config = text_config(file.path(), 8);
  config.parallel.tp = tp;
  config.parallel.dp = dp;
  config.train.micro_batch = micro;
  config.train.global_batch = global;
  return config;
}

Samples step_samples(DataSource& source, std::int64_t consumed) {
  Samples samples;
  for (const MicroBatch& batch : source.fetch_step(consumed)) {
    const Samples more = samples_of(batch, 8);
    samples.insert(samples.end(), more.begin(), more.end());
  }
  return samples;
}

bool same_rows(const MicroBatch& a, const MicroBatch& b) {
  return a.rows == b.rows && a.tokens == b.tokens &&
         std::ranges::equal(a.ids.span<std::int32_t>(), b.ids.span<std::int32_t>()) &&
         std::ranges::equal(a.targets.span<std::int32_t>(), b.targets.span<std::int32_t>()) &&
         std::ranges::equal(a.row_keys.span<std::int64_t>(), b.row_keys.span<std::int64_t>());
}

// B119: 16 samples, dp=2, tp=2, micro 2, global 4, no shuffle.
TEST(DataLayout, TensorParallelRanksShareRowsAndDataRanksSplitTheStep) {
  const TextFile file(documents(16));
  const Config config = batch_config(file, 2, 2, 2, 4);
  std::vector<std::unique_ptr<DataSource>> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.push_back(make_data_source(config, Layout{.tp = 2, .dp = 2, .rank = rank}));
  }
  EXPECT_EQ(step_samples(*ranks[0], 0), (Samples{0, 1}));
  EXPECT_EQ(step_samples(*ranks[2], 0), (Samples{2, 3}));

  Samples seen;
  for (std::int64_t consumed = 0; consumed < 16; consumed += 4) {
    for (const int first : {0, 2}) {
      const auto a = ranks[static_cast<std::size_t>(first)]->fetch_step(consumed);
      const auto b = ranks[static_cast<std::size_t>(first + 1)]->fetch_step(consumed);
      ASSERT_EQ(a.size(), 1u);
      EXPECT_TRUE(same_rows(a[0], b[0]));
      const Samples more = samples_of(a[0], 8);
      seen.insert(seen.end(), more.begin(), more.end());
    }
  }
  Samples all(16);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(seen, all) << "the union over data ranks and steps is every sample once";
}

TEST(DataLayout, EveryRankAndMicroBatchIsOneContiguousPartOfTheStep) {
  const TextFile file(documents(64));
  const Config config = batch_config(file, 1, 2, 3, 12);
  const auto rank1 = make_data_source(config, Layout{.tp = 1, .dp = 2, .rank = 1});
  const auto step = rank1->fetch_step(24);
  ASSERT_EQ(step.size(), 2u);
  EXPECT_EQ(samples_of(step[0], 8), (Samples{30, 31, 32}));
  EXPECT_EQ(samples_of(step[1], 8), (Samples{33, 34, 35}));
}

// The same step under any layout and any accumulation is the same rows in the same order.
TEST(DataLayout, AStepIsTheSameSamplesUnderAnyLayout) {
  const TextFile file(documents(50));
  Config config = batch_config(file, 1, 1, 8, 8);
  config.data.shuffle = true;
  const Samples expected = step_samples(*make_data_source(config, Layout{}), 16);
  for (const int dp : {2, 4}) {
    for (const std::int64_t micro : {1, 2}) {
      config = batch_config(file, 2, dp, micro, 8);
      config.data.shuffle = true;
      Samples samples;
      for (int d = 0; d < dp; ++d) {
        const auto source = make_data_source(config, Layout{.tp = 2, .dp = dp, .rank = 2 * d});
        const Samples more = step_samples(*source, 16);
        samples.insert(samples.end(), more.begin(), more.end());
      }
      EXPECT_EQ(samples, expected) << "dp " << dp << ", micro " << micro;
    }
  }
}

// B85: 10 samples, batch 2, 3 epochs; a source made after step 7 goes on as the first one did.
TEST(DataLayout, ResumingInALaterEpochGivesTheSameSamples) {
  const TextFile file(documents(10));
  Config config = batch_config(file, 1, 1, 2, 2);
  config.data.shuffle = true;
  const auto source = make_data_source(config, Layout{});
  const auto resumed = make_data_source(config, Layout{});
  std::vector<Samples> epochs(3);
  for (std::int64_t step = 0; step < 15; ++step) {
    const Samples samples = step_samples(*source, 2 * step);
    ASSERT_EQ(samples.size(), 2u);
    auto& epoch = epochs[static_cast<std::size_t>(step / 5)];
    epoch.insert(epoch.end(), samples.begin(), samples.end());
    if (step >= 7) {
      EXPECT_EQ(step_samples(*resumed, 2 * step), samples);
    }
  }
  EXPECT_NE(epochs[0], epochs[1]);
  for (Samples& epoch : epochs) {
    std::sort(epoch.begin(), epoch.end());
    EXPECT_EQ(epoch, (Samples{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  }
}

// B123: fewer samples than data ranks take in a step: samples flow on into the next epoch, so that
// every rank has full batches and no sample comes twice in an epoch.
TEST(DataLayout, StepsFlowOnAcrossEpochs) {
  const TextFile file(documents(3));
  const Config config = batch_config(file, 1, 4, 1, 4);
  Samples samples;
  for (std::int64_t consumed = 0; consumed < 12; consumed += 4) {
    for (int rank = 0; rank < 4; ++rank) {
      const auto source = make_data_source(config, Layout{.tp = 1, .dp = 4, .rank = rank});
      const Samples more = step_samples(*source, consumed);
      ASSERT_EQ(more.size(), 1u);
      samples.push_back(more[0]);
    }
  }
  EXPECT_EQ(samples, (Samples{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}));
}

TEST(Evaluation, SeesEachHeldOutSampleOnceWithEmptyBatchesAtTheEnd) {
  const TextFile file(documents(34));
  Config config = batch_config(file, 1, 2, 2, 4);
  config.data.valid_fraction = 0.5;  // 17 samples: 9 batches of two, the last of one
  Samples seen;
  std::vector<std::int64_t> rows;
  for (int rank = 0; rank < 2; ++rank) {
    const auto source = make_data_source(config, Layout{.tp = 1, .dp = 2, .rank = rank});
    ASSERT_EQ(source->evaluation_batches(), 5);
    for (std::int64_t i = 0; i < 5; ++i) {
      const MicroBatch& batch = source->fetch_evaluation(i);
      const Samples more = samples_of(batch, 8);
      seen.insert(seen.end(), more.begin(), more.end());
      rows.push_back(batch.rows);
      EXPECT_EQ(batch.ids.dim(0), batch.rows);
    }
  }
  Samples all(17);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(seen, all);
  EXPECT_EQ(rows, (std::vector<std::int64_t>{64, 64, 64, 64, 64, 64, 64, 64, 64, 0}));
}

TEST(Evaluation, RunsTheSameNumberOfBatchesOnEveryRank) {
  for (const int dp : {1, 2, 3, 4, 8}) {
    for (const std::int64_t samples : {0, 1, 7, 8, 9, 100}) {
      const TrainConfig train{.micro_batch = 3};
      std::int64_t next = 0;
      for (int rank = 0; rank < dp; ++rank) {
        const Layout layout{.tp = 1, .dp = dp, .rank = rank};
        for (std::int64_t i = 0; i < evaluation_batches_per_rank(train, layout, samples); ++i) {
          const SampleRange range = evaluation_samples(train, layout, samples, i);
          EXPECT_GE(range.count, 0);
          EXPECT_LE(range.count, 3);
          EXPECT_EQ(range.first, next);
          next += range.count;
        }
      }
      EXPECT_EQ(next, samples) << "dp " << dp;
    }
  }
}

}  // namespace
}  // namespace tandem
