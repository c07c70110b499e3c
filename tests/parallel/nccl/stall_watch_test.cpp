// The two threads that look out for stalls: that one looks again and again, and that the other
// tells when a look itself is held.
#include "parallel/nccl/stall_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace tandem::nccl {

namespace {

using namespace std::chrono_literals;

/// False if `condition` does not hold within seconds.
template <typename Condition>
bool wait_until(const Condition& condition) {
  for (int i = 0; i < 5000 && !condition(); ++i) {
    std::this_thread::sleep_for(1ms);
  }
  return condition();
}

TEST(StallWatch, LooksAgainAndAgainUntilThereIsNothingMoreToSee) {
  std::atomic<int> looks{0}, held{0};
  {
    const StallWatch watch(
        0.05, [&] { return ++looks < 3; }, [&](double) { return ++held > 0; });
    EXPECT_TRUE(wait_until([&] { return looks == 3; }));
    std::this_thread::sleep_for(300ms);
  }
  EXPECT_EQ(looks, 3);
  EXPECT_EQ(held, 0) << "no look was under way for long";
}

TEST(StallWatch, TellsOnceThatALookIsHeld) {
  std::atomic<bool> release{false};
  std::atomic<int> held{0};
  std::atomic<double> seconds{0.0};
  {
    const StallWatch watch(
        0.3,
        [&] {
          while (!release) {
            std::this_thread::sleep_for(1ms);
          }
          return true;
        },
        [&](double lasted) {
          seconds = lasted;
          return ++held > 0;
        });
    EXPECT_TRUE(wait_until([&] { return held == 1; }));
    std::this_thread::sleep_for(300ms);
    release = true;
  }
  EXPECT_EQ(held, 1);
  EXPECT_GT(seconds, 0.3);
  EXPECT_LT(seconds, 3.0);
}

TEST(StallWatch, AsksAgainWhereThereWasNothingToTell) {
  std::atomic<bool> release{false};
  std::atomic<int> held{0};
  {
    const StallWatch watch(
        0.1,
        [&] {
          while (!release) {
            std::this_thread::sleep_for(1ms);
          }
          return true;
        },
        [&](double) { return ++held == 3; });
    EXPECT_TRUE(wait_until([&] { return held == 3; }));
    std::this_thread::sleep_for(300ms);
    release = true;
  }
  EXPECT_EQ(held, 3);
}

TEST(StallWatch, EndsAtOnceWhereNothingHappens) {
  const auto start = StallWatch::Clock::now();
  {
    const StallWatch watch(
        60.0, [] { return true; }, [](double) { return true; });
  }
  EXPECT_LT(StallWatch::Clock::now() - start, 2s);
}

}  // namespace

}  // namespace tandem::nccl
