// What counts as unusual, on made-up numbers; noise never does.
#include "train/watch/detectors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "train/watch/non_finite.h"
#include "train/watch/rank_clock.h"

namespace tandem::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const Layout kTwoByTwo{.tp = 2, .dp = 2, .rank = 0};

/// Ranks that compute for `seconds` each, wait for the slower ones of their tensor-parallel group
/// and then for the slowest group.
std::vector<RankTimes> computing(const std::vector<double>& seconds,
                                 const Layout& layout = kTwoByTwo) {
  const double slowest = *std::max_element(seconds.begin(), seconds.end());
  std::vector<RankTimes> ranks;
  for (int rank = 0; rank < layout.world(); ++rank) {
    const double own = seconds[static_cast<std::size_t>(rank)];
    double group = own;
    for (const int other : Layout{layout.tp, layout.dp, rank}.tp_group()) {
      group = std::max(group, seconds[static_cast<std::size_t>(other)]);
    }
    ranks.push_back({.data = 0.001,
                     .compute = own,
                     .tensor_parallel = group - own,
                     .data_parallel = 0.004 + slowest - group});
  }
  return ranks;
}

/// Everything found in so many like steps.
std::vector<Straggler> after(StragglerDetector& detector, int steps,
                             const std::vector<RankTimes>& ranks) {
  std::vector<Straggler> all;
  for (int i = 0; i < steps; ++i) {
    const auto found = detector.step(ranks);
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}

TEST(Stragglers, AreRanksSlowerThanTheMedianForTwentyStepsInARow) {
  StragglerDetector detector(kTwoByTwo);
  const auto slow = computing({0.1, 0.1, 0.1, 0.15});
  EXPECT_THAT(after(detector, 19, slow), IsEmpty());
  EXPECT_THAT(detector.step(computing({0.1, 0.1, 0.1, 0.1})), IsEmpty());
  EXPECT_THAT(after(detector, 19, slow), IsEmpty()) << "the row begins anew";
  const auto found = detector.step(slow);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].ranks, ElementsAre(3));
  EXPECT_EQ(found[0].phase, RankPhase::kCompute);
  EXPECT_NEAR(found[0].excess, 0.05, 1e-9);
  EXPECT_NEAR(found[0].phase_excess, 0.05, 1e-9);
  EXPECT_NEAR(found[0].median, 0.105, 1e-9);
  EXPECT_THAT(after(detector, 100, slow), IsEmpty()) << "told once";
}

TEST(Stragglers, AreTenPercentSlowerAndAMillisecond) {
  StragglerDetector detector(kTwoByTwo);
  EXPECT_THAT(after(detector, 100, computing({0.1, 0.1, 0.1, 0.11})), IsEmpty());
  EXPECT_THAT(after(detector, 100, computing({2e-4, 2e-4, 2e-4, 1e-3})), IsEmpty());
  EXPECT_EQ(after(detector, 100, computing({0.1, 0.1, 0.1, 0.112})).size(), 1u);
}

TEST(Stragglers, AreNamedWithThePhaseInWhichTheTimeIsLost) {
  for (const RankPhase phase : {RankPhase::kData, RankPhase::kCompute, RankPhase::kHost}) {
    StragglerDetector detector(kTwoByTwo);
    auto ranks = computing({0.1, 0.1, 0.1, 0.1});
    (phase == RankPhase::kData      ? ranks[1].data
     : phase == RankPhase::kCompute ? ranks[1].compute
                                    : ranks[1].host) += 0.03;
    const auto found = after(detector, 20, ranks);
    ASSERT_EQ(found.size(), 1u) << name_of(phase);
    EXPECT_THAT(found[0].ranks, ElementsAre(1));
    EXPECT_EQ(found[0].phase, phase);
  }
}

// Both ranks of a group have the time of its slow collectives; the others wait for them elsewhere.
TEST(Stragglers, OfCommunicationAreTheRanksOfASlowGroup) {
  StragglerDetector detector(kTwoByTwo);
  auto ranks = computing({0.1, 0.1, 0.1, 0.1});
  for (const std::size_t rank : {0u, 1u}) {
    ranks[rank].tensor_parallel = 0.02;
    ranks[rank].data_parallel += 0.06;
  }
  for (const std::size_t rank : {2u, 3u}) {
    ranks[rank].tensor_parallel = 0.08;
  }
  const auto found = after(detector, 20, ranks);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].ranks, ElementsAre(2, 3));
  EXPECT_EQ(found[0].phase, RankPhase::kCommunication);
  EXPECT_NEAR(found[0].excess, 0.06, 1e-9);
}

// Its peer in the group waits in the group's collectives, and is not slow for it.
TEST(Stragglers, AreNotThoseThatWaitForThem) {
  StragglerDetector detector(kTwoByTwo);
  auto ranks = computing({0.1, 0.1, 0.1, 0.1});
  ranks[2].data += 0.05;
  ranks[3].tensor_parallel += 0.05;
  ranks[0].data_parallel += 0.05;
  ranks[1].data_parallel += 0.05;
  const auto found = after(detector, 20, ranks);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].ranks, ElementsAre(2));
}

TEST(Stragglers, OfTwoRanksIsTheSlowerOne) {
  const Layout pair{.tp = 1, .dp = 2};
  StragglerDetector detector(pair);
  const auto found = after(detector, 20, computing({0.13, 0.1}, pair));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].ranks, ElementsAre(0));
}

TEST(Stragglers, AreNotFoundInSteadyNoise) {
  std::mt19937_64 random(1);
  for (const double deviation : {0.02, 0.2}) {
    std::normal_distribution<double> noise(1.0, deviation);
    const Layout layout{.tp = 2, .dp = 4};
    StragglerDetector detector(layout);
    for (int step = 0; step < 20000; ++step) {
      std::vector<double> seconds(8);
      for (double& own : seconds) {
        own = 0.1 * std::max(0.1, noise(random));
      }
      EXPECT_THAT(detector.step(computing(seconds, layout)), IsEmpty()) << step;
    }
  }
}

TEST(LossSpikes, AreSixDeviationsAboveAtLeastTwentySteps) {
  LossSpikeDetector detector;
  for (int step = 0; step < 19; ++step) {
    EXPECT_FALSE(detector.step(step % 2 == 0 ? 2.9 : 3.1));
  }
  EXPECT_FALSE(detector.step(9.0)) << "too early to say";
  LossSpikeDetector other;
  for (int step = 0; step < 20; ++step) {
    EXPECT_FALSE(other.step(step % 2 == 0 ? 2.9 : 3.1));
  }
  EXPECT_FALSE(other.step(3.5));
  const auto spike = other.step(4.0);
  ASSERT_TRUE(spike);
  EXPECT_NEAR(spike->mean, 3.0, 0.03);
  EXPECT_EQ(spike->steps, 21u);
  EXPECT_TRUE(other.step(4.0)) << "the spike itself is no part of the window";
}

TEST(LossSpikes, OfASteadyLossAreSixPercent) {
  LossSpikeDetector detector;
  for (int step = 0; step < 100; ++step) {
    EXPECT_FALSE(detector.step(3.0));
  }
  EXPECT_FALSE(detector.step(3.15));
  EXPECT_TRUE(detector.step(3.25));
}

TEST(LossSpikes, AreNotFoundInNoiseNorWhereTheLossFalls) {
  std::mt19937_64 random(2);
  std::normal_distribution<double> noise(0.0, 1.0);
  LossSpikeDetector noisy, falling, constant;
  for (int step = 0; step < 100000; ++step) {
    EXPECT_FALSE(noisy.step(4.0 + 0.1 * noise(random))) << step;
    EXPECT_FALSE(falling.step(2.0 + 8.0 * std::exp(-0.01 * step) + 0.05 * noise(random))) << step;
    EXPECT_FALSE(constant.step(3.0 + 1e-6 * noise(random))) << step;
  }
}

TEST(LowRoof, IsBelowATenthForTwentyStepsInARow) {
  LowRoofDetector detector;
  for (int round = 0; round < 3; ++round) {
    for (int step = 0; step < 19; ++step) {
      EXPECT_FALSE(detector.step({.fraction = 0.02, .exposed = 0.5}));
    }
    EXPECT_FALSE(detector.step({.fraction = 0.1}));
  }
  for (int step = 0; step < 19; ++step) {
    EXPECT_FALSE(detector.step({.fraction = step % 2 == 0 ? 0.02 : 0.04, .exposed = 0.5}));
  }
  const auto low = detector.step({.fraction = 0.04, .exposed = 0.5, .data = 0.2});
  ASSERT_TRUE(low);
  EXPECT_NEAR(low->fraction, 0.03, 1e-9);
  EXPECT_NEAR(low->exposed, 0.5, 1e-9);
  EXPECT_NEAR(low->data, 0.01, 1e-9);
}

TEST(RankClock, PartsAStepByTheLedger) {
  Ledger ledger;
  const auto line = [&](const char* group) {
    return ledger.add({.group = Label(group), .op = Collective::kAllReduce, .label = Label("x")},
                      2);
  };
  ledger.add_time(line("tp"), 5.0, 5.0);
  RankClock clock(ledger);
  clock.start();
  ledger.add_time(line("tp"), 0.25, 0.125);
  ledger.add_time(line("dp"), 0.5, 0.5);
  ledger.add_time(line("control"), 1.0, 1.0);
  // A step that took longer than the clock ran: nothing is left over for the host but what the
  // scheduler says.
  const RankTimes times = clock.stop({.seconds = 1000.0, .data_seconds = 100.0});
  EXPECT_EQ(times.data, 100.0);
  EXPECT_EQ(times.tensor_parallel, 0.125);
  EXPECT_EQ(times.data_parallel, 0.5);
  EXPECT_NEAR(times.compute + times.host, 900.0 - 1.625, 1e-9);
  EXPECT_LT(times.host, 100.0);
  clock.start();
  EXPECT_EQ(clock.stop({.seconds = 1.0}).tensor_parallel, 0.0) << "from its start on";
}

const std::vector<std::string> kNames = {"embed.weight", "layers.0.fc1.weight",
                                         "layers.0.fc2.weight", "head.weight"};

std::string described(const std::vector<NonFiniteValues>& ranks) {
  return describe_non_finite(ranks, kTwoByTwo, kNames, 8, 15);
}

TEST(NonFiniteCause, IsTheDataWhereOneDataRankAloneHasIt) {
  EXPECT_THAT(described({{}, {}, {.loss = 1, .gradients = 4}, {.loss = 1, .gradients = 4}}),
              AllOf(HasSubstr("the loss is not finite on ranks 2, 3, while"),
                    HasSubstr("rows are likely at fault"), HasSubstr("samples 8 to 15")));
}

TEST(NonFiniteCause, IsDivergenceWhereAllHaveIt) {
  const NonFiniteValues bad{.loss = 1, .gradient = 3, .gradients = 4};
  EXPECT_THAT(described({bad, bad, bad, bad}),
              AllOf(HasSubstr("the loss is not finite on every rank: "), HasSubstr("diverges"),
                    HasSubstr("optim.lr")));
}

TEST(NonFiniteCause, IsTheFirstGradientThatBackwardComesTo) {
  EXPECT_THAT(described({{}, {.gradient = 1, .gradients = 2}, {}, {.gradient = 2, .gradients = 3}}),
              AllOf(HasSubstr("the loss is finite"),
                    HasSubstr("that of `layers.0.fc2.weight` and 2 more on ranks 1, 3")));
}

TEST(NonFiniteCause, IsTheWeightsBeforeAnythingElse) {
  const NonFiniteValues bad{.loss = 1, .weight = 0, .weights = 2, .gradient = 3, .gradients = 4};
  EXPECT_THAT(
      described({bad, bad, bad, bad}),
      AllOf(HasSubstr("the weights are not finite: `embed.weight` and 1 more on every rank"),
            HasSubstr("older checkpoint"), Not(HasSubstr("diverges"))));
}

TEST(NonFiniteCause, IsTheNormWhereEveryValueIsFinite) {
  EXPECT_THAT(described({{}, {}, {}, {}}), HasSubstr("sum of their squares is not"));
}

}  // namespace
}  // namespace tandem::test
