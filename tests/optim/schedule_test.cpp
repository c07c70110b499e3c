#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

namespace tandem::test {

namespace {

std::vector<double> rates(const ScheduleConfig& schedule, double base, std::int64_t updates) {
  std::vector<double> values;
  for (std::int64_t update = 1; update <= updates; ++update) {
    values.push_back(learning_rate(schedule, base, update));
  }
  return values;
}

void expect_rates(const ScheduleConfig& schedule, const std::vector<double>& expected) {
  const std::vector<double> actual = rates(schedule, 0.1, std::ssize(expected));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], 1e-15) << "update " << i + 1;
  }
}

// B105: the first update has a rate, and `decay_steps` is the update that reaches the lowest.
TEST(Schedule, WsdWarmsUpHoldsAndFallsLinearly) {
  expect_rates({.kind = ScheduleKind::kWsd,
                .warmup_steps = 4,
                .stable_steps = 2,
                .decay_steps = 10,
                .min_lr = 0.0},
               {0.025, 0.05, 0.075, 0.1, 0.1, 0.1, 0.075, 0.05, 0.025, 0, 0, 0});
}

TEST(Schedule, LinearFallsFromTheEndOfTheWarmUp) {
  expect_rates({.kind = ScheduleKind::kLinear, .warmup_steps = 2, .decay_steps = 6, .min_lr = 0.02},
               {0.05, 0.1, 0.08, 0.06, 0.04, 0.02, 0.02});
}

TEST(Schedule, OnlyWsdHoldsTheBase) {
  for (const ScheduleKind kind : {ScheduleKind::kLinear, ScheduleKind::kCosine}) {
    EXPECT_LT(learning_rate({.kind = kind, .warmup_steps = 2, .stable_steps = 5}, 0.1, 3), 0.1);
  }
}

TEST(Schedule, CosineIsBaseAtTheWarmUpsEndAndLowestAtDecaySteps) {
  const ScheduleConfig cosine{
      .kind = ScheduleKind::kCosine, .warmup_steps = 4, .decay_steps = 12, .min_lr = 0.02};
  EXPECT_EQ(learning_rate(cosine, 0.1, 4), 0.1);
  EXPECT_NEAR(learning_rate(cosine, 0.1, 6), 0.02 + 0.04 * (1.0 + std::sqrt(0.5)), 1e-15);
  EXPECT_NEAR(learning_rate(cosine, 0.1, 8), 0.06, 1e-15);
  EXPECT_EQ(learning_rate(cosine, 0.1, 12), 0.02);
  EXPECT_EQ(learning_rate(cosine, 0.1, 1000), 0.02);
}

TEST(Schedule, RisesThenNeverRisesAgainAndStaysWithinItsBounds) {
  for (const ScheduleKind kind : {ScheduleKind::kConstant, ScheduleKind::kLinear,
                                  ScheduleKind::kCosine, ScheduleKind::kWsd}) {
    const ScheduleConfig schedule{.kind = kind,
                                  .warmup_steps = 10,
                                  .stable_steps = kind == ScheduleKind::kWsd ? 7 : 0,
                                  .decay_steps = 50,
                                  .min_lr = 1e-4};
    const std::vector<double> values = rates(schedule, 1e-3, 60);
    for (std::size_t i = 1; i < values.size(); ++i) {
      if (i < 10) {
        EXPECT_GT(values[i], values[i - 1]) << "update " << i + 1;
      } else {
        EXPECT_LE(values[i], values[i - 1]) << "update " << i + 1;
        EXPECT_GE(values[i], 1e-4) << "update " << i + 1;
      }
    }
  }
}

// B107
TEST(Schedule, NoWarmUpStartsAtTheBaseAndNoDecayStaysThere) {
  for (const ScheduleKind kind : {ScheduleKind::kConstant, ScheduleKind::kLinear,
                                  ScheduleKind::kCosine, ScheduleKind::kWsd}) {
    for (const std::int64_t update : {1, 2, 1000000}) {
      EXPECT_EQ(learning_rate({.kind = kind, .warmup_steps = 0, .decay_steps = 0, .min_lr = 0.01},
                              0.1, update),
                0.1);
    }
    const double first = learning_rate(
        {.kind = kind, .warmup_steps = 0, .stable_steps = 1, .decay_steps = 1000000}, 0.1, 1);
    EXPECT_NEAR(first, 0.1, 1e-6);
  }
}

TEST(Schedule, ConstantIgnoresTheDecay) {
  expect_rates(
      {.kind = ScheduleKind::kConstant, .warmup_steps = 2, .decay_steps = 4, .min_lr = 0.0},
      {0.05, 0.1, 0.1, 0.1, 0.1, 0.1});
}

}  // namespace

}  // namespace tandem::test
